"""Values of all encoders and paired differences to the first one, as results tables, sentences and CSV."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

from more_itertools import chunked
from rich.console import Console

from components.core.system.errors import InputError
from components.core.tables.files import atomic_file
from components.evaluation.report.formats import to_markdown
from components.evaluation.scoring.benchmark import Column, Correlation, Scores
from components.evaluation.scoring.comparisons import difference_of, estimate_of, significant
from components.evaluation.scoring.intervals import Interval
from components.evaluation.scoring.result_table import Cell, ResultRow, ResultTable, least_text, signed
from components.evaluation.scoring.results import Report
from components.evaluation.scoring.terminal import rich_table

LEGEND = (
    "Values times 100, ± half of the 95% interval over queries; differences to {reference} with the interval of the "
    "difference per query, ▲ better or ▼ worse if it is not 0 beside all others of its section (Holm, 5%)."
)

_ALWAYS_SIDE_BY_SIDE = 2
_ENDLESS = 1_000_000
_COLUMN_WIDTH = 16
"""Width of a value with its half-width, arrow and frame, `100.0 ±10.0 ▲`."""


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

    def table(self, names: Sequence[str]) -> ResultTable:
        """A row per metric, below everything before the last part of its name; a column per encoder and difference."""
        columns = ["metric", self.reference]
        for encoder in self.encoders[1:]:
            columns += [encoder, f"vs {self.reference}"]
        rows = []
        for name in names:
            first, *others = self.cells[name].values()
            apart = [part for cell in others for part in (replace(cell, delta=None), cell.difference)]
            rows.append(ResultRow(name, [first, *apart], section=name.rsplit("/", 1)[0]))
        order = list(dict.fromkeys(row.section for row in rows))
        rows.sort(key=lambda row: order.index(row.section))
        return ResultTable("", columns, rows, (LEGEND.format(reference=self.reference),))

    def table_by_encoder(self, names: Sequence[str], title: str = "", prefix: str = "") -> ResultTable:
        """A row per encoder and a column per metric, named without `prefix`."""
        rows = [ResultRow(encoder, [self.cells[name][encoder] for name in names]) for encoder in self.encoders]
        return ResultTable(title, ("encoder", *(name.removeprefix(prefix) for name in names)), rows)


def compare(reports: Sequence[Report], scores: Sequence[Scores], resamples: int, seed: int) -> Comparison:
    """Differences of every encoder to the first, with the intervals of their difference per query."""
    first, names = reports[0], [report.encoder for report in reports]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"compare_encoders has '{twice[0]}' twice: name each encoder once")
    for other in reports[1:]:
        left, right = ((report.data_hash, report.protocol, list(report.metrics)) for report in (first, other))
        if left != right:
            raise InputError(
                f"'{first.encoder}' and '{other.encoder}' were evaluated on different data or protocols: "
                f"run `dvc --wait-for-lock repro evaluate`"
            )
    cells: dict[str, dict[str, Cell]] = {}
    sections: dict[str, dict[tuple[str, str], float]] = {}
    for name in first.metrics:
        cells[name] = {}
        for report, scored in zip(reports, scores, strict=True):
            result, delta = report.metrics[name], None
            if report is not first and (columns := _paired(name, scored, scores[0])) is not None:
                about = scored.groups(name)
                delta = difference_of(columns[:1], columns[1:], resamples, seed, *about)
                p = estimate_of(*columns, seed, *about).p
                sections.setdefault(name.rsplit("/", 1)[0], {})[name, report.encoder] = p
            cells[name][report.encoder] = Cell(result.interval, delta, result.higher_is_better)
    for p_of in sections.values():
        clear = significant(p_of)
        for name, encoder in p_of:
            cell = cells[name][encoder]
            is_clear = (name, encoder) in clear and cell.delta is not None and cell.delta.excludes_zero
            cells[name][encoder] = replace(cell, is_clear=is_clear)
    return Comparison(tuple(report.encoder for report in reports), cells)


def difference(name: str, ours: Scores, theirs: Scores, resamples: int, seed: int) -> Interval | None:
    """The paired difference of a metric; None if one side has no values per query, or those of other queries."""
    columns = _paired(name, ours, theirs)
    if columns is None:
        return None
    return difference_of(columns[:1], columns[1:], resamples, seed, *ours.groups(name))


def _paired(name: str, ours: Scores, theirs: Scores) -> tuple[Column, Column] | None:
    columns, others = ours.column(name), theirs.column(name)
    if columns is None or others is None:
        return None
    if not isinstance(columns, Correlation) and not isinstance(others, Correlation) and len(columns) != len(others):
        return None
    return columns, others


def best_encoder(comparison: Comparison, primary: str, challengers: bool = False) -> str:
    """The encoder with the best value of `primary`, of equal ones the first; with `challengers` not the reference.

    The last encoder, where there is only one or `primary` was not measured.
    """
    row = comparison.cells.get(primary, {})
    encoders = [encoder for encoder in row if not challengers or encoder != comparison.reference]
    sign = 1 if all(cell.higher_is_better for cell in row.values()) else -1
    return max(encoders, key=lambda encoder: sign * row[encoder].value.value, default=comparison.encoders[-1])


def headline(comparison: Comparison, primary: str) -> str:
    """The best encoder on `primary`, by how much and whether by chance; on a second line the least that would show."""
    row = comparison.cells.get(primary)
    if row is None:
        return f"{primary} was not measured, so there is no winner."
    best = best_encoder(comparison, primary)
    cell, reference = row[best], row[comparison.reference]
    if cell.delta is None:
        others = ": no other encoder exceeds it" if len(row) > 1 else ""
        shown = _shown(row[best_encoder(comparison, primary, challengers=True)].delta)
        return f"{best} is best on {primary} with {cell.value_text}{others}.{shown}"
    gap, shown = abs(100 * cell.delta.value), _shown(cell.delta)
    span = f"95% interval {signed(cell.delta.low)} to {signed(cell.delta.high)}"
    if not cell.delta.is_known:
        span = "too few queries for an interval"
    if f"{gap:.1f}" == "0.0":
        return (
            f"{best} and {comparison.reference} are equal on {primary} ({span}): {100 * cell.value.value:.1f}.{shown}"
        )
    beats = "beats" if cell.verdict == "better" else "is ahead of"
    chance = "" if cell.verdict == "better" else ", which could be chance"
    return (
        f"{best} {beats} {comparison.reference} on {primary} by {gap:.1f} points ({span}){chance}: "
        f"{100 * cell.value.value:.1f} against {100 * reference.value.value:.1f}.{shown}"
    )


def _shown(delta: Interval | None) -> str:
    return f"\nThe test set shows {least_text(delta.least)}." if delta is not None and delta.is_known else ""


def show(comparison: Comparison, primary: str, key: list[str], every: bool = False, groups: bool = False) -> None:
    """Print the metrics `key`, or all over all queries without any, and the options that print the others."""
    overall, grouped = comparison.names(grouped=False), comparison.names(grouped=True)
    shown = (overall if every or groups or not key else key) + (grouped if groups else [])
    print_comparison(comparison, primary, shown)
    if hidden := len(comparison.cells) - len(shown):
        print(f"{hidden} more metrics: cliptune report --all, cliptune report --groups")


def print_comparison(comparison: Comparison, primary: str, names: Sequence[str]) -> None:
    """Print these metrics of all encoders side by side, or in rows if the terminal is too narrow."""
    console = Console()
    table = comparison.table(names)
    side_by_side = rich_table(table)
    natural = console.measure(side_by_side, options=console.options.update_width(_ENDLESS)).maximum
    if len(comparison.encoders) > _ALWAYS_SIDE_BY_SIDE and natural > console.width:
        fitting = (console.width - max(map(len, comparison.encoders)) - 4) // _COLUMN_WIDTH
        for section, rows in table.sections.items():
            for few in chunked([row.name for row in rows], max(1, fitting)):
                console.print(rich_table(comparison.table_by_encoder(few, section, prefix=f"{section}/")))
    else:
        console.print(side_by_side)
    console.print(LEGEND.format(reference=comparison.reference), style="dim", markup=False)
    console.print(headline(comparison, primary), style="bold", markup=False, highlight=False)


def markdown(comparison: Comparison, primary: str) -> str:
    """The comparison as Markdown: headline, the metrics over all queries, the metrics by group."""
    parts = (("Over all queries", comparison.names(grouped=False)), ("By group", comparison.names(grouped=True)))
    tables = [
        ResultTable(
            title,
            ("metric", *comparison.encoders),
            [ResultRow(name, list(comparison.cells[name].values())) for name in names],
            (LEGEND.format(reference=comparison.reference),),
        )
        for title, names in parts
        if names
    ]
    return f"# Comparison\n\n{headline(comparison, primary)}\n\n{to_markdown(tables)}"


_COLUMNS = (
    "metric", "higher_is_better", "encoder", "value", "low", "high", "delta", "delta_low", "delta_high", "verdict",
)  # fmt: skip


def long_table(comparison: Comparison) -> dict[str, list[Any]]:
    """Columns of one row per metric and encoder; the reference's difference is None."""
    rows = [
        (metric, cell.higher_is_better, encoder, *astuple(cell.value), *_ends(cell.delta), cell.verdict)
        for metric, row in comparison.cells.items()
        for encoder, cell in row.items()
    ]
    return {name: [row[place] for row in rows] for place, name in enumerate(_COLUMNS)}


def _ends(delta: Interval | None) -> tuple[float | None, ...]:
    return astuple(delta) if delta else (None, None, None)


def write_csv(comparison: Comparison, path: Path) -> None:
    """Write the rows of `long_table`; the reference's difference is empty."""
    columns = long_table(comparison)
    columns["higher_is_better"] = [str(higher).lower() for higher in columns["higher_is_better"]]
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([_COLUMNS, *zip(*columns.values(), strict=True)])


def read_csv(path: Path) -> Comparison:
    """Read the file of `write_csv`."""
    cells: dict[str, dict[str, Cell]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                delta = _interval(row, "delta", "delta_low", "delta_high") if row["delta"] else None
                higher, is_clear = row["higher_is_better"] == "true", delta is None or row["verdict"] != ""
                cell = Cell(_interval(row, "value", "low", "high"), delta, higher, is_clear=is_clear)
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


def wide_table(comparison: Comparison) -> dict[str, list[Any]]:
    """Columns of one row per encoder: a column per metric."""
    values = {metric: [cell.value.value for cell in row.values()] for metric, row in comparison.cells.items()}
    return {"encoder": list(comparison.encoders)} | values
