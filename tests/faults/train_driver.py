"""A small training run, to be killed by `test_kill_train.py`.

torchrun --nproc-per-node 2 tests/faults/train_driver.py <folder>
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parents[2]))

from components.core.compute import checkpoint
from components.core.compute.checkpoint import Checkpoints
from components.core.compute.distributed import World, join_world
from components.core.system.errors import run_command
from components.encoders.adapter.encoder import Encoder
from components.training.engine.loop import fit
from components.training.engine.meter import Step
from components.training.engine.run import LoopOptions, Run
from components.training.methods.contract.method import Optimisation
from components.training.rows.batches import CachedFeatures, Sampler, TableSource, Texts
from tests.conftest import TINY
from tests.support.params import profile_text
from tests.support.synthetic_training import WORDS, Subject, subject

STEPS_PER_EPOCH, CHECKPOINT_EVERY, VALIDATE_EVERY = 10, 3, 4
BATCH, ACCUMULATE = 4, 2
GROUPS = (STEPS_PER_EPOCH * ACCUMULATE + 1) * BATCH  # one batch is left over at the end of an epoch
FINAL = "final.safetensors"


def train(folder: Path, epochs: int, report: Callable[[Step], None], world: World) -> None:
    """Train SemCLIP with everything that has a state, and write the exported weights to `folder`."""
    torch.manual_seed(0)
    found = subject("semclip", Encoder.create("tiny", "tiny", TINY, "test"), Path(), learnable=True)
    fit(
        Run(
            title="tiny",
            model=found.encoder.model,
            trained=found.trained,
            losses=lambda features: _noisy(found.method.losses(features)),
            source=_table(found, world),
            optimisation=Optimisation(
                lr=1e-3,
                batch_size=BATCH,
                epochs=epochs,
                weight_decay=0.1,
                warmup_steps=5,
                clip_gradient=1.0,
                accumulate=ACCUMULATE,
            ),
            extra=found.extra,
            perturb=found.perturb,
            options=LoopOptions(
                world=world, checkpoint_every=CHECKPOINT_EVERY, log_every=1, validate_every=VALIDATE_EVERY
            ),
            checkpoints=Checkpoints(folder / "state"),
            report=report,
            validate=lambda _, step: {"score": _wobble(found) - abs(step - 0.6 * epochs * STEPS_PER_EPOCH)},
            select=("score", True),
        )
    )
    if world.leads:
        save_file({name: weights.detach() for name, weights in found.trained.items()}, folder / FINAL)


def _table(found: Subject, world: World) -> TableSource:
    """Two rows for each image; the caption is one of two texts, drawn in each epoch."""
    rng, rows = np.random.default_rng(3), 2 * GROUPS
    tokenizer, dim = found.encoder.tokenizer, found.encoder.sidecar.embed_dim
    columns = ("caption_1", "caption_2", "paraphrase_1", "semclip_paraphrase", "negation")
    texts = {name: [" ".join(rng.choice(WORDS, size=rng.integers(2, 9))) for _ in range(rows)] for name in columns}
    tokens = {name: tokenizer(column) for name, column in texts.items()}
    images = np.arange(rows) // 2
    return TableSource(
        sampler=Sampler(images, BATCH, 7),
        columns=found.method.columns,
        names=[f"row-{row}" for row in range(rows)],
        texts={name: Texts(column, tokenizer.lengths(column)) for name, column in tokens.items()},
        images={"image": images},
        shown=CachedFeatures(rng.normal(size=(GROUPS, dim)).astype(np.float32)),
        draws={"caption": {"caption_1": 1.0, "caption_2": 1.0}},
        world=world,
    )


def _noisy(losses: dict[str, Tensor]) -> dict[str, Tensor]:
    """A method may draw random numbers; their sequence must continue too."""
    return {name: loss * (0.9 + 0.2 * torch.rand(())) for name, loss in losses.items()}


@torch.no_grad()
def _wobble(found: Subject) -> float:
    """A small number that differs from weights to weights."""
    return float(torch.cat([weights.flatten() for weights in found.trained.values() if weights.ndim < 2]).sin().mean())


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)
    _die()


def _after(writer: str, place: int, fault: Callable[[Path], None], name: str) -> None:
    """Call `fault` after `writer` of the checkpoint called `name`; its argument number `place` is the path."""
    write: Callable[..., None] = getattr(checkpoint, writer)

    def wrapped(*arguments: Any) -> None:
        path: Path = arguments[place]
        write(*arguments)
        if path.parent.name.startswith(f".{name}."):
            fault(path)

    mock.patch.object(checkpoint, writer, wrapped).start()


def _before_rename(name: str) -> None:
    replace = os.replace

    def wrapped(source: Path, target: Path) -> None:
        if target.name == name:
            _die()
        replace(source, target)

    mock.patch.object(os, "replace", wrapped).start()


def _half_removed(name: str) -> None:
    remove = shutil.rmtree

    def wrapped(folder: Path | str, **options: Any) -> None:
        path = Path(folder)
        if path.exists() and (path.name == name or path.name.startswith(f".{name}.")):
            next(path.iterdir()).unlink()
            _die()
        remove(path, **options)

    mock.patch.object(shutil, "rmtree", wrapped).start()


FAULTS: dict[str, Callable[[str], None]] = {
    "half of the tensors": lambda name: _after("save_file", 1, _halve, name),
    "no facts": lambda name: _after("save_file", 1, lambda _: _die(), name),
    "facts": lambda name: _after("write_json", 0, lambda _: _die(), name),
    "no rename": _before_rename,
    "half removed": _half_removed,
}
"""Faults of writing a checkpoint; each is armed with the name of the folder that it strikes."""


def forked(
    messages: Connection,
    folder: Path,
    epochs: int,
    fault: tuple[str, str] | None,
    pause: int | None,
    environment: dict[str, str],
) -> None:
    """The process that is killed: sends each step's number, and its stderr if it ends by itself.

    Args:
        fault: one of `FAULTS` and the folder that it strikes.
        pause: the step in which it waits for a signal, so that none comes too late.
        environment: the variables that torchrun sets for a rank.
    """
    torch.set_num_threads(1)
    os.environ.update(environment)
    # Laying a profile over params.yaml writes files too, which no fault is meant for.
    profile_text("methods")
    if fault is not None:
        FAULTS[fault[0]](fault[1])

    wait = _signal_waiter()

    def report(step: Step) -> None:
        messages.send(step.number)
        if step.number == pause:
            wait()

    printed = io.StringIO()
    try:
        with redirect_stderr(printed):
            run_command(lambda: _join(folder, epochs, report))
    finally:
        messages.send(printed.getvalue())


def _join(folder: Path, epochs: int, report: Callable[[Step], None]) -> None:
    with join_world("cpu") as (world, _):
        train(folder, epochs, report, world)


def _signal_waiter() -> Callable[[], object]:
    """Waits for a signal with a handler, which may have come before: `signal.pause` would miss that one for ever."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write)
    return lambda: os.read(read, 1)


def main() -> None:
    """One rank under torchrun, to be killed: prints its process number; the leading rank prints each step's number."""
    torch.set_num_threads(1)
    print(f"rank {os.environ['RANK']} {os.getpid()}", flush=True)

    wait = _signal_waiter()

    def report(step: Step) -> None:
        print(f"step {step.number}", flush=True)
        if step.number == 2 * STEPS_PER_EPOCH:
            wait()

    _join(Path(sys.argv[1]), 2, report)


if __name__ == "__main__":
    main()
