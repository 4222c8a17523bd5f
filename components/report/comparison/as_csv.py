"""The comparison as CSV: one line per metric and encoder."""

from __future__ import annotations

import csv
from pathlib import Path

from components.benchmarks.bootstrap import Interval
from components.core.errors import InputError
from components.core.files import atomic_file
from components.report.comparison.comparison import Cell, Comparison

_COLUMNS = ("metric", "higher_is_better", "encoder", "value", "low", "high", "delta", "delta_low", "delta_high")


def write(comparison: Comparison, path: Path) -> None:
    """Write one line per metric and encoder; the reference's difference stays empty."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow((*_COLUMNS, "verdict"))
        for metric, row in comparison.cells.items():
            for encoder, cell in row.items():
                writer.writerow(
                    (
                        metric,
                        str(cell.higher_is_better).lower(),
                        encoder,
                        *_numbers(cell.value),
                        *_numbers(cell.delta),
                        cell.verdict,
                    )
                )


def read(path: Path) -> Comparison:
    """Read what `write` wrote.

    Raises:
        InputError: the file is missing or damaged.
    """
    cells: dict[str, dict[str, Cell]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                delta = _interval(row, "delta", "delta_low", "delta_high") if row["delta"] else None
                value = _interval(row, "value", "low", "high")
                cells.setdefault(row["metric"], {})[row["encoder"]] = Cell(
                    value, delta, row["higher_is_better"] == "true"
                )
    except FileNotFoundError:
        raise InputError(f"{path} is missing: run `dvc repro compare` to make it") from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): run `dvc repro compare` to make it again") from None
    if not cells:
        raise InputError(f"{path} is empty: run `dvc repro compare` to make it again")
    return Comparison(tuple(next(iter(cells.values()))), cells)


def _numbers(found: Interval | None) -> tuple[str, str, str]:
    return (repr(found.value), repr(found.low), repr(found.high)) if found else ("", "", "")


def _interval(row: dict[str, str], value: str, low: str, high: str) -> Interval:
    return Interval(float(row[value]), float(row[low]), float(row[high]))
