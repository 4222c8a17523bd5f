"""Kinds of search, one file each; a file's name is the kind's name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.core.discovery import file_names, find

if TYPE_CHECKING:
    from components.index.kinds.kind import Kind

AUTO = "auto"


def kind_names() -> list[str]:
    """The names of all kinds, sorted."""
    return file_names(__path__, skip=("kind", "approximate"))


def find_kind(name: str) -> Kind:
    """The kind in `kinds/<name>.py`.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    found: Kind = find(__name__, kind_names(), name, "KIND", "--kind")
    return found


def choose_kind(name: str, rows: int) -> str:
    """`name`, or for `auto` the kind that is made for so many rows.

    Raises:
        InputError: there is no such kind.
    """
    if name != AUTO:
        find_kind(name)
        return name
    least = {one: find_kind(one).auto_from for one in kind_names()}
    fitting = {one: rows_from for one, rows_from in least.items() if rows_from is not None and rows_from <= rows}
    return max(fitting, key=lambda one: fitting[one])
