"""Synthesised tables, one file each; a file's name is the table's name."""

from __future__ import annotations

from collections.abc import Collection

from components.core.discovery import file_names, find
from components.core.errors import InputError
from components.validation.table import Synthesised


def find_table(name: str, what: str = "synthesised table") -> Synthesised:
    """The table in `tables/<name>.py`; `what` is how the error calls it.

    Raises:
        InputError: there is no such file; the message lists those that are.
    """
    table: Synthesised = find(__name__, file_names(__path__), name, "TABLE", what)
    return table


def tables_of(tasks: Collection[str]) -> list[Synthesised]:
    """The tables that can be made from the answers to `tasks`, sorted by name.

    Raises:
        InputError: there is none.
    """
    tables = [find_table(name) for name in file_names(__path__)]
    complete = [table for table in tables if all(answer.task in tasks for answer in table.answers)]
    if not complete:
        raise InputError(
            f"params.yaml: synthesize.tasks ({', '.join(tasks) or 'empty'}) makes no whole table: "
            "add the tasks of one of components/validation/tables"
        )
    return complete
