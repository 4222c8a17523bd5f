"""Training processes to be killed, and the files that they leave."""

from __future__ import annotations

import multiprocessing
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import cache
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.faults.train_driver import FINAL, forked

EPOCHS = 2
PATIENCE = 200
"""Seconds after which a silent process is taken to hang; a start on a busy machine takes a good part of it."""


@cache
def _warm() -> Any:
    """A factory of processes from a parent that has imported everything, so that twenty starts cost one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([forked.__module__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        forkserver.ensure_running()
    return context


class Trainer:
    """A process that trains; `printed` is its stderr once it ended by itself.

    Args:
        fault, pause, environment: see `train_driver.forked`.
    """

    def __init__(
        self,
        folder: Path,
        epochs: int,
        *,
        fault: tuple[str, str] | None = None,
        pause: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._messages, sender = _warm().Pipe(duplex=False)
        arguments = (sender, folder, epochs, fault, pause, dict(environment or {}))
        self._process = _warm().Process(target=forked, args=arguments, daemon=True)
        self._process.start()
        sender.close()
        self.printed: object = None

    def steps(self) -> Iterator[int]:
        """The number of each step as it is done, until the process ends."""
        while isinstance(message := _receive(self._messages), int):
            yield message
        self.printed = message

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        self._process.kill()
        assert self.ended() == -signal.SIGKILL

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self._process.pid, number)

    def ended(self) -> int | None:
        """The exit code."""
        self._process.join(PATIENCE)
        code: int | None = self._process.exitcode
        return code


def _receive(connection: Connection) -> object:
    """The next message of the process, None where it was killed."""
    if not connection.poll(PATIENCE):
        raise TimeoutError("the training process is silent")
    try:
        return connection.recv()
    except EOFError:
        return None


class Torchrun:
    """Two ranks under torchrun that wait for ever in the last step; `process`, the launcher, ends with the block."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.errors = folder / "errors.txt"
        command = [sys.executable, "-m", "components.core.compute.distributed", "--standalone", "--nproc-per-node", "2"]
        self.process = subprocess.Popen(
            [*command, str(Path(__file__).with_name("train_driver.py")), str(folder)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=self.errors.open("w"),
            text=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()
        self.ranks: dict[int, int] = {}

    def __enter__(self) -> Torchrun:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def steps(self) -> Iterator[int]:
        """The number of each step as it is done; `ranks` holds the process of each rank by then."""
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            if found := re.match(r"rank (\d+) (\d+)", line):
                self.ranks[int(found[1])] = int(found[2])
            elif found := re.match(r"step (\d+)", line):
                yield int(found[1])

    def ended(self) -> int:
        """The exit code of the launcher."""
        return self.process.wait(PATIENCE)


def train_to_the_end(folder: Path, epochs: int) -> list[int]:
    """Train until the process ends by itself; returns the steps that were done."""
    trainer = Trainer(folder, epochs)
    steps = list(trainer.steps())
    assert trainer.ended() == 0
    assert not leftovers(folder)
    return steps


def saved(folder: Path) -> list[int]:
    """The steps of a run's checkpoints."""
    return sorted(int(path.name.removeprefix("step-")) for path in (folder / "state").glob("step-*"))


def leftovers(folder: Path) -> list[Path]:
    """Unfinished files of a killed writer of a run's checkpoints."""
    return list((folder / "state").glob(".*"))


def assert_equal(one: Path, other: Path) -> None:
    """The exported weights and the best ones are the same to the last bit."""
    for name in (FINAL, "state/best/state.safetensors"):
        found, expected = load_file(one / name), load_file(other / name)
        assert found.keys() == expected.keys()
        assert not [key for key in expected if not torch.equal(found[key], expected[key])], name
    facts = "state/best/state.json"
    assert (one / facts).read_text("utf-8") == (other / facts).read_text("utf-8")
