"""Finds the project's folder from any folder inside it, and runs commands there."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import chdir
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec

import typer

from components.core.system.errors import InputError, run_command

P = ParamSpec("P")
GO_THERE = "run the command in the project's folder, or below it"
_MARK = "params.yaml"
_typed_in: ContextVar[Path | None] = ContextVar("_typed_in", default=None)
"""The folder of the user while a command runs in the project's folder."""


def find_root(start: Path) -> Path:
    """The nearest folder with a params.yaml, from `start` upwards; `start` if there is none."""
    return next((folder for folder in (start, *start.parents) if (folder / _MARK).is_file()), start)


def require_project() -> None:
    """Refuse to run outside a project, for commands that would otherwise show an empty one."""
    if not Path(_MARK).is_file():
        raise InputError(f"{_MARK} is missing: {GO_THERE}")


def run_in_project(command: Callable[[], None]) -> None:
    """`run_command` in the project's folder, which the paths of stages and params.yaml are relative to."""

    def there() -> None:
        before = _typed_in.set(Path.cwd())
        try:
            with chdir(find_root(Path.cwd())):
                command()
        finally:
            _typed_in.reset(before)

    run_command(there)


def in_project(command: Callable[P, None]) -> Callable[P, None]:
    """A command that runs in the project's folder, see `run_in_project`."""

    @wraps(command)
    def there(*args: P.args, **options: P.kwargs) -> None:
        run_in_project(partial(command, *args, **options))

    return there


def start(main: Callable[..., Any]) -> None:
    """Make a function the command of its module, with plain help and one line for a wrong option.

    An option's value that is the name of DVC's present stage, such as `train@paraclip`, becomes the entry `paraclip`:
    the shell of a stage then never reads a name of params.yaml.
    """
    _keep_freed_memory()
    app = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    app.command()(main)
    if stage := os.environ.get("DVC_STAGE"):
        from components.core.compute.provenance import remember_code

        remember_code(stage)
    app([value.partition("@")[2] if value == stage else value for value in sys.argv[1:]])


def _keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next tensors.

    By default it returns each block of more than 32 MB, such as the output of a layer, to the kernel, and page faults
    take most of the time. With kept memory `embed` with EfficientNet-lite2 is five times as fast.
    """
    trim_threshold, most_mapped = -1, -4
    # Other C libraries have no mallopt.
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(most_mapped, 0)
        mallopt(trim_threshold, -1)


def from_root(path: Path, default: Path | None = None) -> Path:
    """A path that the user typed, relative to the project's folder.

    `default` is the default of the option, which is already relative to it.
    """
    start = _typed_in.get()
    if start is None or start == Path.cwd() or path == default or path.is_absolute():
        return path
    return Path(os.path.relpath(start / path))
