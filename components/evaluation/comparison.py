"""Encoders side by side: values, paired differences to the first one, and the table as CSV and Markdown."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.errors import InputError
from components.evaluation.bootstrap import Interval, interval
from components.evaluation.results import Report, Scores
from components.files import atomic_file

CSV_FILE, MARKDOWN_FILE = "comparison.csv", "comparison.md"
_COLUMNS = ("metric", "higher_is_better", "encoder", "value", "low", "high", "delta", "delta_low", "delta_high")


@dataclass(frozen=True)
class Cell:
    """One encoder's value of a metric, and its paired difference to the reference (None for the reference)."""

    value: Interval
    delta: Interval | None
    higher_is_better: bool

    @property
    def verdict(self) -> str:
        """`better` or `worse` where the difference's interval excludes 0, else empty."""
        if self.delta is None or not self.delta.excludes_zero:
            return ""
        return "better" if (self.delta.value > 0) == self.higher_is_better else "worse"


@dataclass(frozen=True)
class Comparison:
    """Cells by metric and encoder; the first encoder is the reference of all differences."""

    encoders: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]

    @property
    def reference(self) -> str:
        """The encoder that the others are compared with."""
        return self.encoders[0]

    def sections(self, grouped: bool) -> dict[str, list[str]]:
        """Metric names by everything before their last part; `grouped` chooses those with a group between."""
        found: dict[str, list[str]] = {}
        for name in self.cells:
            if (name.count("/") > 1) == grouped:
                found.setdefault(name.rsplit("/", 1)[0], []).append(name)
        return found


def compare(reports: Sequence[Report], scores: Sequence[Scores], resamples: int, seed: int) -> Comparison:
    """Differences of every encoder to the first, with paired bootstrap intervals.

    Raises:
        InputError: two encoders were evaluated on different data or by different protocols.
    """
    first = reports[0]
    for other in reports[1:]:
        same = (other.data_hash, other.protocol, list(other.metrics)) == (
            first.data_hash,
            first.protocol,
            list(first.metrics),
        )
        if not same:
            raise InputError(
                f"'{first.encoder}' and '{other.encoder}' were evaluated on different data or protocols: "
                f"run `python -m components.evaluation.evaluate` for both"
            )
    cells: dict[str, dict[str, Cell]] = {}
    for name in first.metrics:
        cells[name] = {}
        for report, found in zip(reports, scores, strict=True):
            result = report.metrics[name]
            difference = found.values[name] - scores[0].values[name]
            delta = interval(difference, resamples, seed, found.strata.get(name)) if report is not first else None
            cells[name][report.encoder] = Cell(Interval(result.value, *result.ci95), delta, result.higher_is_better)
    return Comparison(tuple(report.encoder for report in reports), cells)


def write_csv(comparison: Comparison, path: Path) -> None:
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


def read_csv(path: Path) -> Comparison:
    """Read what `write_csv` wrote.

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


def markdown(comparison: Comparison, primary: str) -> str:
    """The comparison as Markdown: headline, the metrics over all queries, the metrics by group."""
    lines = ["# Comparison", "", headline(comparison, primary), ""]
    for title, grouped in (("Over all queries", False), ("By group", True)):
        sections = comparison.sections(grouped)
        if not sections:
            continue
        columns = ["metric", *(encoder for encoder in comparison.encoders)]
        lines += [f"## {title}", "", _line(columns), _line(["---", *("---:" for _ in comparison.encoders)])]
        for names in sections.values():
            lines += [_line([f"`{name}`", *map(full_text, comparison.cells[name].values())]) for name in names]
        lines.append("")
    lines.append(LEGEND.format(reference=comparison.reference))
    return "\n".join(lines) + "\n"


LEGEND = (
    "Values times 100, ± half of the 95% bootstrap interval over queries. In brackets the difference to {reference} "
    "with its paired-bootstrap interval; ▲ better or ▼ worse where that interval excludes 0."
)


def headline(comparison: Comparison, primary: str) -> str:
    """One sentence: which encoder is best on `primary`, by how much, and whether that could be chance."""
    row = comparison.cells.get(primary)
    if row is None:
        return f"{primary} was not measured, so there is no winner."
    best = best_encoder(comparison, primary)
    cell, reference = row[best], row[comparison.reference]
    if cell.delta is None:
        others = ": no other encoder exceeds it" if len(row) > 1 else ""
        return f"{best} is best on {primary} with {value_text(cell)}{others}."
    gap = abs(100 * cell.delta.value)
    span = f"95% interval {signed(cell.delta.low)} to {signed(cell.delta.high)}"
    beats = "beats" if cell.verdict == "better" else "is ahead of"
    chance = "" if cell.verdict == "better" else ", which could be chance"
    return (
        f"{best} {beats} {comparison.reference} on {primary} by {gap:.1f} points ({span}){chance}: "
        f"{100 * cell.value.value:.1f} against {100 * reference.value.value:.1f}."
    )


def best_encoder(comparison: Comparison, primary: str) -> str:
    """The encoder with the best value of `primary`; the earlier one of equals."""
    row = comparison.cells[primary]
    sign = 1 if next(iter(row.values())).higher_is_better else -1
    return max(row, key=lambda encoder: sign * row[encoder].value.value)


def value_text(cell: Cell) -> str:
    """Such as `71.2 ±1.3`."""
    return f"{100 * cell.value.value:.1f} ±{100 * cell.value.half_width:.1f}"


def delta_text(cell: Cell) -> str:
    """Such as `+8.9 [+7.8, +10.1] ▲`; empty for the reference."""
    if cell.delta is None:
        return ""
    mark = {"better": " ▲", "worse": " ▼", "": ""}[cell.verdict]
    return f"{signed(cell.delta.value)} [{signed(cell.delta.low)}, {signed(cell.delta.high)}]{mark}"


def full_text(cell: Cell) -> str:
    """Value and difference in one text."""
    return f"{value_text(cell)} ({delta_text(cell)})" if cell.delta else value_text(cell)


def signed(number: float) -> str:
    """A share as signed points."""
    return f"{100 * number:+.1f}"


def _line(columns: Sequence[str]) -> str:
    return f"| {' | '.join(columns)} |"


def _numbers(found: Interval | None) -> tuple[str, str, str]:
    return (repr(found.value), repr(found.low), repr(found.high)) if found else ("", "", "")


def _interval(row: dict[str, str], value: str, low: str, high: str) -> Interval:
    return Interval(float(row[value]), float(row[low]), float(row[high]))
