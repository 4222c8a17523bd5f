"""Opens the files of a user's folder: plain files in that folder and of a bounded size; no other code opens them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from components.core.system.errors import InputError


class Bound(NamedTuple):
    """The largest size of a file in bytes, and the setting that raises it."""

    bytes: int
    setting: str

    @classmethod
    def of(cls, megabytes: int, setting: str) -> Bound:
        """A bound that a setting gives in megabytes."""
        return cls(megabytes * 1_000_000, setting)


class RefusedError(InputError):
    """A file that is not opened; `why` follows a name, as in `is missing: add or remove it`."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}")
        self.why = why


def checked_file(path: Path, folder: Path | None, most: Bound | None) -> Path:
    """The real path of a file that `open_file` would open.

    Args:
        folder: the user's folder, which the file must be in; None for a file that the user named.
        most: None for a file that is read in parts.

    Raises:
        RefusedError: the file is missing, outside `folder`, behind a link to a file outside it, larger than `most`, or
            not a plain file, such as a named pipe or a device.
    """
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except (OSError, RuntimeError, ValueError) as error:
        # The name may be too long, have a byte that is not allowed in names, or be a link to itself.
        reason = getattr(error, "strerror", None)
        missing = reason is None or isinstance(error, FileNotFoundError | NotADirectoryError)
        gone = f"is {'missing' if folder is None else f'not in {folder}'}: add or remove it"
        raise RefusedError(path, gone if missing else _unreadable(str(reason))) from None
    if folder is not None and not real.is_relative_to(folder.resolve()):
        is_link = os.path.normpath(path).startswith(f"{os.path.normpath(folder)}{os.sep}")
        where = f"a link to a file outside {folder}" if is_link else f"outside {folder}"
        raise RefusedError(path, f"is {where}: copy the file into the folder")
    if not stat.S_ISREG(status.st_mode):
        raise RefusedError(path, "is not a plain file: replace or remove it")
    if most is not None and status.st_size > most.bytes:
        size = f"{status.st_size / 1e6:,.0f} MB, more than {most.bytes / 1e6:,.0f} MB"
        raise RefusedError(path, f"is too large ({size}): replace it or raise {most.setting}")
    return real


def is_file(path: Path) -> bool:
    """Whether a plain file is there; False for a name that no file can have, for which `Path.is_file` raises."""
    return os.path.isfile(path)


@contextmanager
def open_file(path: Path, folder: Path | None, most: Bound | None) -> Iterator[BinaryIO]:
    """A user's file, opened for reading; for arguments and errors see `checked_file`.

    Raises:
        RefusedError: also if it may not be read.
    """
    real = checked_file(path, folder, most)
    try:
        # Where the file was replaced meanwhile, a link is not followed and a pipe does not block.
        opened = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RefusedError(path, _unreadable(error.strerror)) from None
    with open(opened, "rb") as stream:
        yield stream


def read_file(path: Path, folder: Path | None, most: Bound) -> bytes:
    """The bytes of a user's file; for arguments and errors see `open_file`."""
    with open_file(path, folder, most) as stream:
        try:
            content = stream.read(os.fstat(stream.fileno()).st_size + 1)
        except OSError as error:
            raise RefusedError(path, _unreadable(error.strerror)) from None
    return content


def _unreadable(reason: str | None) -> str:
    return f"cannot be read ({reason}): make it readable or remove it"
