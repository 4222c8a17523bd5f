"""Stages as processes of their own, started from a parent that has imported everything: ten starts cost one."""

from __future__ import annotations

import multiprocessing
import os
import resource
import runpy
import sys
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
import torch

PATIENCE_S = 200.0
"""After which a stage is taken to hang."""
_PRELOADED = (
    "components.training.train",
    "components.training.base.base",
    "mlflow",
    "mlflow.tracking._tracking_service",
)


Environment = Mapping[str, str | None] | None


@dataclass(frozen=True)
class Ended:
    """The result of a command; `code` is its exit code, minus a signal's number where that ended it."""

    code: int
    output: str
    errors: str

    @property
    def complaints(self) -> list[str]:
        """The lines that tell the user what to fix."""
        return [line for line in self.errors.splitlines() if line.startswith("error: ")]


class WarmStage:
    """A running `python -m <module> <arguments>` in a folder that writes no file of more than `longest` bytes.

    `environment` is added to the variables of this process; the value None removes one.
    """

    def __init__(
        self, folder: Path, module: str, *arguments: str, environment: Environment = None, longest: int | None = None
    ) -> None:
        self._printed = tempfile.TemporaryDirectory(prefix="stage-")
        self.out, self.err = (Path(self._printed.name, name) for name in ("out", "err"))
        given = (folder, module, arguments, environment, longest, self.out, self.err)
        self.process = _warm().Process(target=_run, args=given, daemon=True)
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    @property
    def runs(self) -> bool:
        return bool(self.process.is_alive())

    def wait(self) -> Ended:
        """Its result, once it has ended."""
        self.process.join(PATIENCE_S)
        if self.runs:
            self.kill()
            pytest.fail(f"the stage hangs: {self.err.read_text()}")
        return Ended(self.process.exitcode, self.out.read_text(), self.err.read_text())


def run_stage(folder: Path, module: str, *arguments: str, **options: Any) -> Ended:
    """Run `python -m <module> <arguments>` in a folder to its end; the options are those of `WarmStage`."""
    return WarmStage(folder, module, *arguments, **options).wait()


@cache
def _warm() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_PRELOADED, __name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        forkserver.ensure_running()
    return context


def _run(
    folder: Path, module: str, arguments: tuple[str, ...], environment: Environment, longest: int | None, *output: Path
) -> None:
    for number, path in enumerate(output, 1):
        with path.open("wb") as stream:
            os.dup2(stream.fileno(), number)
    # Tiny models are fastest on one thread, and sums of more threads differ in the last digit. Set here, because the
    # server may have been started with other settings.
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    # The store of the folder: by default all tests share one.
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    for name, value in (environment or {}).items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    if longest is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (longest, resource.RLIM_INFINITY))
    os.chdir(folder)
    sys.argv = [module, *arguments]
    with warnings.catch_warnings():
        # The module is there already, which is the point.
        warnings.simplefilter("ignore", RuntimeWarning)
        runpy.run_module(module, run_name="__main__", alter_sys=True)
