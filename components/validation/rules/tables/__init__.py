"""Synthesised tables: each file exports `TABLES` of one kind; their columns are in `core/records.py`."""

from __future__ import annotations

import importlib
from functools import cache

from components.core.system.discovery import choose, file_names
from components.validation.rules.table import Synthesised


@cache
def synthesised_tables() -> dict[str, Synthesised]:
    """All tables by name, sorted."""
    files = [importlib.import_module(f"{__name__}.{name}") for name in file_names(__path__)]
    return dict(sorted((table.name, table) for file in files for table in file.TABLES))


def find_table(name: str) -> Synthesised:
    """The table of that name.

    Raises:
        InputError: there is no such table; the message lists all tables.
    """
    return synthesised_tables()[choose(list(synthesised_tables()), name, "synthesised table")]
