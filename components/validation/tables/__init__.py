"""Synthesised tables, one file each; a file's name is the table's name."""

from __future__ import annotations

from components.core.discovery import file_names, find
from components.validation.table import Synthesised


def find_table(name: str, what: str = "synthesised table") -> Synthesised:
    """The table in `tables/<name>.py`; `what` is how the error calls it.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    table: Synthesised = find(__name__, file_names(__path__), name, "TABLE", what)
    return table
