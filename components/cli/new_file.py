"""A file that a command is to write: nothing that exists is overwritten."""

from __future__ import annotations

from pathlib import Path

from components.core.errors import InputError
from components.core.project import from_root


def new_file(path: Path) -> Path:
    """The path of a file to write, as `from_root` gives it.

    Raises:
        InputError: there is such a file or folder already.
    """
    place = from_root(path)
    if place.exists() or place.is_symlink():
        raise InputError(f"{path} is there already: name a new file, or remove it")
    return place
