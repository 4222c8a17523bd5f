"""Rows of annotation files, each checked for the columns that a benchmark reads."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from components.benchmarks.encoding.published_context import PublishedContext
from components.core.errors import InputError

_NAMED = 3


def read_rows(context: PublishedContext, path: str, columns: Mapping[str, type]) -> list[dict[str, Any]]:
    """The rows of a JSON list, or of a JSON object whose values are rows, in the file's order.

    Rows that lack a column or hold another type in it are named, counted and left out where `--allow-partial` allows.

    Raises:
        InputError: the file is no JSON list or object of rows, or rows are bad and may not be left out.
    """
    content = context.read_json(path)
    found = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(found, list):
        raise InputError(f"{context.folder / path} holds no list of rows: fetch it again")
    return checked(context, path, found, columns)


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a comma-separated file whose first line names the columns.

    Raises:
        InputError: the file is missing or damaged.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            return list(csv.DictReader(stream))
    except (csv.Error, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): fetch it again") from None


def checked(
    context: PublishedContext, path: str, rows: Iterable[Any], columns: Mapping[str, type]
) -> list[dict[str, Any]]:
    """Those of `rows` that have every column in its type.

    Raises:
        InputError: some do not, and may not be left out; or none does.
    """
    good, bad = [], []
    for number, row in enumerate(rows):
        if isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in columns.items()):
            good.append(row)
        else:
            bad.append(number)
    if bad:
        named = ", ".join(map(str, bad[:_NAMED])) + (", ..." if len(bad) > _NAMED else "")
        context.amiss(f"{path}: {len(bad)} rows lack {' or '.join(columns)} (row {named}, counted from 0)")
    if not good:
        raise InputError(f"{context.folder / path} has no row that can be scored: fetch it again")
    return good
