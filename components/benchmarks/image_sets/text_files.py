"""Lists and tables in text files of image sets."""

from __future__ import annotations

from pathlib import Path

from components.core.errors import InputError


def lines(path: Path) -> list[str]:
    """The lines of a file without surrounding space; empty ones and comments (#) are left out.

    Raises:
        InputError: the file is missing or no UTF-8 text.
    """
    try:
        found = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except FileNotFoundError:
        raise InputError(f"{path} is missing: put it there as its authors publish it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): fetch it again") from None
    return [line for line in found if line and not line.startswith("#")]


def table(path: Path, columns: int, separator: str | None = None) -> list[list[str]]:
    """The rows of a file of `columns` columns, the last of which may hold the separator.

    Raises:
        InputError: the file is missing, or a row has fewer columns.
    """
    rows = [line.split(separator, columns - 1) for line in lines(path)]
    for number, row in enumerate(rows):
        if len(row) != columns:
            raise InputError(f"{path}: row {number} has {len(row)} columns instead of {columns}: fetch the file again")
    return rows


def whole_number(path: Path, text: str) -> int:
    """`text` of `path` as a number.

    Raises:
        InputError: it is none.
    """
    if not text.isdecimal() or len(text) > 9:
        raise InputError(f"{path}: '{text[:40]}' is no number: fetch the file again")
    return int(text)
