"""Results on published benchmarks as results tables, and paired tests between encoders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING

from more_itertools import map_reduce

from components.core.system.errors import InputError
from components.evaluation.report.comparison import difference
from components.evaluation.report.published.paper_tables import Collection
from components.evaluation.scoring.comparisons import sign_flip_p
from components.evaluation.scoring.result_table import (
    Cell,
    Difference,
    ResultRow,
    ResultTable,
    least_text,
    number,
    signed,
    span_text,
)
from components.evaluation.scoring.results import PublishedReport, main_metrics, read_scores

if TYPE_CHECKING:
    from components.evaluation.scoring.ranking import Ranking

_SHARES = "Shares times 100."
_HALF_WIDTHS = "±: half of the 95% interval over queries."
_PAPER = "(paper): value from the paper."
_PARTIAL = "*: the data was not as published, so the value is not comparable."
_TESTS = "▲ better, ▼ worse: the paired interval excludes 0. p: paired permutation test, two-sided."
_GROUPS = (
    "Values times 100. Less the best: less the best of the others, with intervals that all hold at once (Hsu, 95%); an "
    "encoder whose interval reaches 0 could be the best. Encoders that share a letter do not differ significantly "
    "(paired permutation tests of all pairs, Holm, 5%), which does not make them equal: a smaller difference than the "
    "least that the queries show would rarely be found."
)
_RESAMPLES = 2000


def encoder_names(reports: Sequence[PublishedReport]) -> Callable[[PublishedReport], str]:
    """Names for tables: the encoder's name, with the start of its hash if other weights have the same name."""
    weights = map_reduce(reports, lambda report: report.encoder, lambda report: report.encoder_sha256, frozenset)

    def name(report: PublishedReport) -> str:
        unique = len(weights[report.encoder]) == 1
        return report.encoder if unique else f"{report.encoder} {report.encoder_sha256[:8]}"

    return name


def paper_tables(collection: Collection, reports: Sequence[PublishedReport]) -> list[ResultTable]:
    """A paper's tables with our rows above the paper's."""
    tables = []
    for table in collection.tables:
        used = {metric.split("/", 1)[0] for column in table.columns for metric in column.metrics}
        rows = []
        for encoder, group in map_reduce(reports, encoder_names(reports)).items():
            values = {name: result.value for report in group for name, result in report.metrics.items()}
            cells = [number(column.value(values), table.digits(), scale=1) for column in table.columns]
            partial = any(report.partial for report in group if report.benchmark in used)
            if any(cells):
                rows.append(ResultRow(encoder, cells, source="partial data" if partial else "measured"))
        for name, figures in table.rows.items():
            printed = [number(figure, table.digits(name), scale=1) for figure in figures]
            rows.append(ResultRow(name, printed, source="paper"))
        columns = ("encoder", *(column.name for column in table.columns))
        tables.append(ResultTable(f"{collection.paper}, {table.title}", columns, rows, notes=_notes(rows)))
    return tables


def metric_tables(reports: Sequence[PublishedReport], *, groups: bool = False) -> list[ResultTable]:
    """A table per benchmark with a column per metric; metrics by group only if `groups` is set."""
    tables = []
    named = encoder_names(reports)
    encoders = list(dict.fromkeys(map(named, reports)))
    for benchmark, scored in map_reduce(reports, lambda report: report.benchmark).items():
        names = list(dict.fromkeys(name for report in scored for name in report.metrics))
        shown = names if groups else main_metrics(names)
        rows = [
            ResultRow(
                named(report),
                [report.metrics[name].cell() if name in report.metrics else None for name in shown],
                source="partial data" if report.partial else "measured",
            )
            for report in sorted(scored, key=lambda report: encoders.index(named(report)))
        ]
        title = f"{benchmark}, version {scored[0].version} ({scored[0].protocol})"
        columns = ("encoder", *(name.removeprefix(f"{benchmark}/") for name in shown))
        tables.append(ResultTable(title, columns, rows, notes=_notes(rows)))
    return tables


def _notes(rows: Sequence[ResultRow]) -> list[str]:
    cells = [cell for row in rows for cell in row.cells if isinstance(cell, Cell)]
    sources = {row.source for row in rows}
    notes = {
        _SHARES: True,
        _HALF_WIDTHS: any(not isnan(cell.value.low) for cell in cells),
        _PAPER: "paper" in sources,
        _PARTIAL: "partial data" in sources,
    }
    return [note for note, holds in notes.items() if holds]


def paired_tables(
    reports: Sequence[PublishedReport], against: str, folder: Path, seed: int = 0, *, groups: bool = False
) -> list[ResultTable]:
    """A table per encoder: its metrics next to those of `against` on the same queries, their difference, and p.

    Args:
        against: name as in tables (see `encoder_names`).
    """
    named = encoder_names(reports)
    reference = {report.benchmark: report for report in reports if named(report) == against}
    if not reference:
        known = ", ".join(f"'{name}'" for name in dict.fromkeys(map(named, reports))) or "none"
        raise InputError(f"--baseline '{against}' has no results: choose one of {known}")
    rows: dict[str, list[ResultRow]] = {}
    for report in reports:
        other = reference.get(report.benchmark)
        if other is not None and named(report) != against:
            pairs = {row.name: row for row in _paired_rows(report, other, folder, seed)}
            for name in pairs if groups else main_metrics(list(pairs)):
                rows.setdefault(named(report), []).append(pairs[name])
    return [
        ResultTable(
            f"{encoder} against {against}, same queries",
            ("metric", encoder, against, "difference", "p"),
            found,
            notes=(_SHARES, _TESTS),
        )
        for encoder, found in rows.items()
    ]


def _paired_rows(report: PublishedReport, other: PublishedReport, folder: Path, seed: int) -> Iterator[ResultRow]:
    """A row for each metric with values per query; p is missing for correlations and queries about two pictures."""
    if not report.is_of(report.encoder_sha256, other.version, other.data_hash, other.options):
        raise InputError(
            f"'{report.encoder}' and '{other.encoder}' were scored with different data, options or versions of "
            f"{report.benchmark}: run `cliptune evaluate` for both"
        )
    ours, theirs = (read_scores(one, folder) for one in (report, other))
    for name, result in report.metrics.items():
        delta = difference(name, ours, theirs, _RESAMPLES, seed) if name in other.metrics else None
        if delta is None:
            continue
        (strata, pictures), p = ours.groups(name), None
        if name in ours.values and (pictures is None or pictures.ndim == 1):
            p = sign_flip_p(ours.values[name], theirs.values[name], _RESAMPLES, seed, strata, pictures)
        values = number(result.value), number(other.metrics[name].value)
        yield ResultRow(name, (*values, Difference(delta, result.higher_is_better), number(p, digits=4, scale=1)))


def ranking_tables(rankings: Sequence[Ranking]) -> list[ResultTable]:
    """A table per metric: encoders with their groups, the best first, and their difference to the best other one."""
    tables = []
    for one in rankings:
        rows = []
        for place in one.encoders:
            behind = f"{signed(place.behind.value)} {span_text(place.behind)}"
            rows.append(ResultRow(place.encoder, (number(place.value), behind, place.groups)))
        columns = ("encoder", "value", "less the best", "groups")
        title = f"{one.metric}, {one.queries:,} queries show {least_text(one.least)}"
        tables.append(ResultTable(title, columns, rows, notes=(_GROUPS,)))
    return tables
