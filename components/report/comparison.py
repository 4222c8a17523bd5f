"""Values of all encoders and paired differences to the first one, as CSV, tables, sentences and Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from components.benchmarks.scoring.benchmark import Scores
from components.benchmarks.scoring.bootstrap import Interval, paired_difference
from components.core.system.errors import InputError
from components.core.tables.files import atomic_file
from components.evaluation.results import Report


@dataclass(frozen=True)
class Cell:
    """An encoder's value of a metric, and its paired difference to the reference.

    `delta` is None for the reference, and for a metric without values per query.
    """

    value: Interval
    delta: Interval | None
    higher_is_better: bool

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the interval of the difference excludes 0, else empty."""
        return self.delta.verdict(self.higher_is_better) if self.delta else ""


@dataclass(frozen=True)
class Comparison:
    """Cells by metric and encoder; the first encoder is the reference of all differences."""

    encoders: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]

    @property
    def reference(self) -> str:
        """The encoder that all others are compared with."""
        return self.encoders[0]

    def names(self, grouped: bool) -> list[str]:
        """Names of the metrics over all queries, or by group of queries."""
        return [name for name in self.cells if (name.count("/") > 1) == grouped]

    @staticmethod
    def sections(names: Iterable[str]) -> dict[str, list[str]]:
        """Metric names by everything before their last part."""
        sections: dict[str, list[str]] = {}
        for name in names:
            sections.setdefault(name.rsplit("/", 1)[0], []).append(name)
        return sections


def compare(reports: Sequence[Report], scores: Sequence[Scores], resamples: int, seed: int) -> Comparison:
    """Differences of every encoder to the first, with paired bootstrap intervals."""
    first = reports[0]
    for other in reports[1:]:
        left, right = ((report.data_hash, report.protocol, list(report.metrics)) for report in (first, other))
        if left != right:
            raise InputError(
                f"'{first.encoder}' and '{other.encoder}' were evaluated on different data or protocols: "
                f"run `dvc --wait-for-lock repro evaluate`"
            )
    cells: dict[str, dict[str, Cell]] = {}
    for name in first.metrics:
        cells[name] = {}
        for report, scored in zip(reports, scores, strict=True):
            result = report.metrics[name]
            columns, others = (each.values.get(name, each.correlations.get(name)) for each in (scored, scores[0]))
            about = scored.strata.get(name), scored.pictures.get(name)
            delta = None
            if columns is not None and others is not None and report is not first:
                delta = paired_difference(columns, others, resamples, seed, *about)
            cells[name][report.encoder] = Cell(Interval(result.value, *result.span), delta, result.higher_is_better)
    return Comparison(tuple(report.encoder for report in reports), cells)


def best_encoder(comparison: Comparison, primary: str) -> str:
    """The encoder with the best value of `primary`; of equal encoders the first."""
    row = comparison.cells[primary]
    sign = 1 if next(iter(row.values())).higher_is_better else -1
    return max(row, key=lambda encoder: sign * row[encoder].value.value)


def best_challenger(comparison: Comparison, primary: str) -> str:
    """The best encoder except the reference; the last encoder if there is no other or no `primary`."""
    row = {name: cell for name, cell in comparison.cells.get(primary, {}).items() if name != comparison.reference}
    if not row:
        return comparison.encoders[-1]
    return best_encoder(Comparison(tuple(row), {primary: row}), primary)


_COLUMNS = (
    "metric", "higher_is_better", "encoder", "value", "low", "high", "delta", "delta_low", "delta_high", "verdict",
)  # fmt: skip


def _entries(comparison: Comparison) -> Iterator[tuple[Any, ...]]:
    """A row of `_COLUMNS` for each metric and encoder; the reference has no difference."""
    for metric, row in comparison.cells.items():
        for encoder, cell in row.items():
            delta = astuple(cell.delta) if cell.delta else (None, None, None)
            yield metric, cell.higher_is_better, encoder, *astuple(cell.value), *delta, cell.verdict


def write_csv(comparison: Comparison, path: Path) -> None:
    """Write one line per metric and encoder; the reference's difference is empty."""
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(_COLUMNS)
        writer.writerows((metric, str(higher).lower(), *rest) for metric, higher, *rest in _entries(comparison))


def read_csv(path: Path) -> Comparison:
    """Read the file of `write_csv`."""
    cells: dict[str, dict[str, Cell]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                delta = _interval(row, "delta", "delta_low", "delta_high") if row["delta"] else None
                cell = Cell(_interval(row, "value", "low", "high"), delta, row["higher_is_better"] == "true")
                cells.setdefault(row["metric"], {})[row["encoder"]] = cell
    except FileNotFoundError:
        raise InputError(f"{path} is missing: run `dvc repro compare` to make it") from None
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): run `dvc repro compare` to recreate it") from None
    if not cells:
        raise InputError(f"{path} is empty: run `dvc repro compare` to recreate it")
    return Comparison(tuple(next(iter(cells.values()))), cells)


def _interval(row: dict[str, str], *columns: str) -> Interval:
    return Interval(*(float(row[column]) for column in columns))


def long_table(comparison: Comparison) -> dict[str, list[Any]]:
    """Columns of one row per metric and encoder, with intervals and differences."""
    rows = list(_entries(comparison))
    return {name: [row[at] for row in rows] for at, name in enumerate(_COLUMNS) if name != "higher_is_better"}


def wide_table(comparison: Comparison) -> dict[str, list[Any]]:
    """Columns of one row per encoder: a column per metric."""
    columns: dict[str, list[Any]] = {"encoder": list(comparison.encoders)}
    for metric, row in comparison.cells.items():
        columns[metric] = [row[encoder].value.value for encoder in comparison.encoders]
    return columns


LEGEND = (
    "Values times 100, ± half of the 95% bootstrap interval over queries; differences to {reference} "
    "with their paired-bootstrap interval, ▲ better or ▼ worse if it excludes 0."
)


def headline(comparison: Comparison, primary: str) -> str:
    """One sentence: the best encoder on `primary`, by how much, and whether that could be chance."""
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
    if f"{gap:.1f}" == "0.0":
        return f"{best} and {comparison.reference} are equal on {primary} ({span}): {100 * cell.value.value:.1f}."
    beats = "beats" if cell.verdict == "better" else "is ahead of"
    chance = "" if cell.verdict == "better" else ", which could be chance"
    return (
        f"{best} {beats} {comparison.reference} on {primary} by {gap:.1f} points ({span}){chance}: "
        f"{100 * cell.value.value:.1f} against {100 * reference.value.value:.1f}."
    )


def value_text(cell: Cell) -> str:
    """Such as `71.2 ±1.3`."""
    return f"{100 * cell.value.value:.1f} ±{100 * cell.value.half_width:.1f}"


def delta_text(cell: Cell) -> str:
    """Such as `+8.9 [+7.8, +10.1] ▲`; empty for the reference."""
    return f"{signed(cell.delta.value)} {span_text(cell.delta)} {mark(cell)}".rstrip() if cell.delta else ""


def span_text(delta: Interval) -> str:
    """Such as `[+7.8, +10.1]`."""
    return f"[{signed(delta.low)}, {signed(delta.high)}]"


def mark(cell: Cell) -> str:
    """An arrow if the interval of the difference excludes 0."""
    return {"better": "▲", "worse": "▼", "": ""}[cell.verdict]


def full_text(cell: Cell) -> str:
    """Value and difference in one text."""
    return f"{value_text(cell)} ({delta_text(cell)})" if cell.delta else value_text(cell)


def signed(number: float) -> str:
    """A share as signed points."""
    return f"{100 * number:+.1f}"


def markdown(comparison: Comparison, primary: str) -> str:
    """The comparison as Markdown: headline, the metrics over all queries, the metrics by group."""
    lines = ["# Comparison", "", headline(comparison, primary), ""]
    for title, grouped in (("Over all queries", False), ("By group", True)):
        names = comparison.names(grouped)
        if not names:
            continue
        columns = ["metric", *(encoder for encoder in comparison.encoders)]
        lines += [
            f"## {title}",
            "",
            markdown_line(columns),
            markdown_line(["---", *("---:" for _ in comparison.encoders)]),
        ]
        lines += [markdown_line([f"`{name}`", *map(full_text, comparison.cells[name].values())]) for name in names]
        lines.append("")
    lines.append(LEGEND.format(reference=comparison.reference))
    return "\n".join(lines) + "\n"


def markdown_line(columns: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(column.replace('|', chr(92) + '|') for column in columns)} |"
