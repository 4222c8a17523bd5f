"""What an index is made of, one file each; a file's name is the source's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.core.discovery import file_names, find
from components.core.errors import InputError

if TYPE_CHECKING:
    from components.index.sources.source import Source


def source_names() -> list[str]:
    """The names of all sources, sorted."""
    return file_names(__path__, skip=("source", "pictures"))


def find_source(name: str) -> Source:
    """The source in `sources/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    found: Source = find(__name__, source_names(), name, "SOURCE", "--source")
    return found


def source_of(given: str) -> str:
    """The name of the source that `given` is one of.

    Raises:
        InputError: it is none, or may be several.
    """
    fitting = [name for name in source_names() if find_source(name).fits(given)]
    if not fitting:
        raise InputError(
            f"--from {given} is no project's data folder, no folder of pictures, no shards, no embeddings and no "
            "index: correct the path"
        )
    fitting = [name for name in fitting if not find_source(name).general] or fitting
    if len(fitting) > 1:
        raise InputError(f"--from {given} may be {' or '.join(fitting)}: say which with --source")
    return fitting[0]
