"""What may happen to a process while it writes a checkpoint; each is armed with the name of the folder it strikes."""

from __future__ import annotations

import os
import resource
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


def _limit(size: int) -> None:
    """No file may grow beyond `size` bytes; what a full disk does to a writer."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def _around(writer: str, place: int, before: Callable[[], None], after: Callable[[Path], None], name: str) -> None:
    """Call these around `writer` of the checkpoint called `name`; its argument number `place` is the path."""
    write: Callable[..., None] = getattr(checkpoint, writer)

    def wrapped(*arguments: Any) -> None:
        path: Path = arguments[place]
        meant = path.parent.name.startswith(f".{name}.")
        if meant:
            before()
        write(*arguments)
        if meant:
            after(path)

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


def _nothing(*_: object) -> None:
    pass


FAULTS: dict[str, Callable[[str], None]] = {
    "half of the tensors": lambda name: _around("save_file", 1, _nothing, _halve, name),
    "no facts": lambda name: _around("save_file", 1, _nothing, lambda _: _die(), name),
    "facts": lambda name: _around("write_json", 0, _nothing, lambda _: _die(), name),
    "no rename": _before_rename,
    "half removed": _half_removed,
    "no space for tensors": lambda name: _around("save_file", 1, lambda: _limit(1 << 20), _nothing, name),
    "no space for facts": lambda name: _around("write_json", 0, lambda: _limit(10), _nothing, name),
}
