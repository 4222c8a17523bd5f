"""Faults of a process that writes a checkpoint; each is armed with the name of the folder that it strikes."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from components.core.compute import checkpoint


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
