"""Results on published benchmarks as CSV, Markdown, HTML and bars, and paired tests between encoders."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from more_itertools import map_reduce

from components.benchmarks.scoring.bootstrap import Interval, paired_difference, sign_flip_p
from components.core.system.errors import InputError
from components.encoders.adapter.sidecar import SIDECAR, read_sidecar
from components.evaluation.results import PublishedReport, Result, read_scores
from components.report.comparison import markdown_line
from components.report.published.paper_tables import Collection

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from components.evaluation.ranking import Ranking

GROUPS = "Encoders that share a letter do not differ significantly (paired permutation tests of all pairs, Holm, 5%)."
_RESAMPLES = 2000
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class PairedResult:
    """A metric of two encoders on the same queries.

    Attributes:
        difference: `value` minus `other`, with its paired-bootstrap interval.
        p: two-sided p of the paired permutation test; None for correlations and for queries about two pictures.
    """

    metric: str
    encoder: str
    against: str
    value: float
    other: float
    difference: Interval
    p: float | None
    higher_is_better: bool

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the interval excludes 0, else empty."""
        return self.difference.verdict(self.higher_is_better)


def encoder_names(reports: Sequence[PublishedReport]) -> Callable[[PublishedReport], str]:
    """Names for tables: the encoder's name, with the start of its hash if other weights have the same name."""
    weights = map_reduce(reports, lambda report: report.encoder, lambda report: report.encoder_sha256, frozenset)

    def name(report: PublishedReport) -> str:
        unique = len(weights[report.encoder]) == 1
        return report.encoder if unique else f"{report.encoder} {report.encoder_sha256[:8]}"

    return name


def _shown(names: Sequence[str], *, groups: bool) -> list[str]:
    """The metrics over all queries; also those by group if `groups` is set or there are no others."""
    plain = [name for name in names if name.count("/") == 1]
    return list(names) if groups or not plain else plain


def paired(
    reports: Sequence[PublishedReport], against: str, folder: Path, seed: int = 0, *, groups: bool = False
) -> list[PairedResult]:
    """Compare all encoders with `against` on the benchmarks that both have results of.

    Args:
        against: name as in tables (see `encoder_names`).
    """
    named = encoder_names(reports)
    reference = {report.benchmark: report for report in reports if named(report) == against}
    if not reference:
        known = ", ".join(f"'{name}'" for name in dict.fromkeys(map(named, reports))) or "none"
        raise InputError(f"--baseline '{against}' has no results: choose one of {known}")
    results: list[PairedResult] = []
    for report in reports:
        other = reference.get(report.benchmark)
        if other is not None and named(report) != against:
            pairs = {pair.metric: pair for pair in _pairs(report, other, (named(report), named(other)), folder, seed)}
            results += [pairs[name] for name in _shown(list(pairs), groups=groups)]
    return results


def _pairs(
    report: PublishedReport, other: PublishedReport, names: tuple[str, str], folder: Path, seed: int
) -> list[PairedResult]:
    if not report.is_of(report.encoder_sha256, other.version, other.data_hash, other.options):
        raise InputError(
            f"'{report.encoder}' and '{other.encoder}' were scored with different data, options or versions of "
            f"{report.benchmark}: run `cliptune evaluate` for both"
        )
    ours, theirs = (read_scores(one, folder) for one in (report, other))
    found = []
    for name, value in report.metrics.items():
        if name not in other.metrics:
            continue
        strata, pictures = ours.strata.get(name), ours.pictures.get(name)
        difference, p = None, None
        if name in ours.values and len(ours.values[name]) == len(theirs.values.get(name, ())):
            first, second = ours.values[name], theirs.values[name]
            difference = paired_difference(first, second, _RESAMPLES, seed, strata, pictures)
            if pictures is None or pictures.ndim == 1:
                p = sign_flip_p(first, second, _RESAMPLES, seed, strata, pictures)
        elif name in ours.correlations and name in theirs.correlations:
            both = ours.correlations[name], theirs.correlations[name]
            difference = paired_difference(*both, _RESAMPLES, seed, None, pictures)
        if difference is not None:
            values = value.value, other.metrics[name].value
            found.append(PairedResult(name, *names, *values, difference, p, value.higher_is_better))
    return found


@dataclass(frozen=True)
class TableCell:
    """A value times 100 and half of its 95% interval, each None if missing."""

    value: float | None
    half_width: float | None = None
    digits: int = 1

    @property
    def text(self) -> str:
        """Such as `71.2 ±1.3`."""
        if self.value is None:
            return ""
        return f"{self.value:.{self.digits}f}" + (f" ±{self.half_width:.1f}" if self.half_width is not None else "")


@dataclass(frozen=True)
class TableRow:
    """An encoder's measured values, or values from the paper; the mark `*` means modified data."""

    encoder: str
    cells: tuple[TableCell, ...]
    printed: bool = False
    mark: str = ""


@dataclass(frozen=True)
class TableSection:
    """A table with its title."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]


def paper_sections(collection: Collection, reports: Sequence[PublishedReport]) -> list[TableSection]:
    """A paper's tables with our rows above the paper's."""
    sections = []
    for table in collection.tables:
        ours = []
        for encoder, group in map_reduce(reports, encoder_names(reports)).items():
            values = {name: result.value for report in group for name, result in report.metrics.items()}
            cells = tuple(TableCell(column.value(values), digits=table.digits()) for column in table.columns)
            partial = {report.benchmark for report in group if report.partial}
            used = {metric.split("/", 1)[0] for column in table.columns for metric in column.metrics}
            if any(cell.value is not None for cell in cells):
                ours.append(TableRow(encoder, cells, mark="*" if partial & used else ""))
        printed = [
            TableRow(name, tuple(TableCell(figure, digits=table.digits(name)) for figure in figures), printed=True)
            for name, figures in table.rows.items()
        ]
        columns = tuple(column.name for column in table.columns)
        sections.append(TableSection(f"{collection.paper}, {table.title}", columns, (*ours, *printed)))
    return sections


def metric_sections(reports: Sequence[PublishedReport], *, groups: bool = False) -> list[TableSection]:
    """A table per benchmark with a column per metric; metrics by group only if `groups` is set."""
    sections = []
    named = encoder_names(reports)
    encoders = list(dict.fromkeys(map(named, reports)))
    for benchmark, scored in map_reduce(reports, lambda report: report.benchmark).items():
        names = list(dict.fromkeys(name for report in scored for name in report.metrics))
        shown = _shown(names, groups=groups)
        rows = tuple(
            TableRow(
                named(report),
                tuple(_cell(report.metrics.get(name)) for name in shown),
                mark="*" if report.partial else "",
            )
            for report in sorted(scored, key=lambda report: encoders.index(named(report)))
        )
        columns = tuple(name.removeprefix(f"{benchmark}/") for name in shown)
        protocol = f"{benchmark}, version {scored[0].version} ({scored[0].protocol})"
        sections.append(TableSection(protocol, columns, rows))
    return sections


def paired_sections(pairs: Sequence[PairedResult]) -> list[TableSection]:
    """A table per encoder: its metrics, those of the other encoder, and the results of the tests."""
    sections = []
    for (encoder, against), group in map_reduce(pairs, lambda pair: (pair.encoder, pair.against)).items():
        rows = tuple(
            TableRow(
                pair.metric,
                (
                    TableCell(100 * pair.value),
                    TableCell(100 * pair.other),
                    TableCell(100 * pair.difference.value, 100 * pair.difference.half_width),
                    TableCell(pair.p, digits=4),
                ),
                mark={"better": " ▲", "worse": " ▼", "": ""}[pair.verdict],
            )
            for pair in group
        )
        columns = (encoder, against, "difference", "p")
        sections.append(TableSection(f"{encoder} against {against}, same queries", columns, rows))
    return sections


def ranking_sections(rankings: Sequence[Ranking]) -> list[TableSection]:
    """A table per metric: encoders with their groups, the best first, and their difference to it."""
    sections = []
    for one in rankings:
        rows = []
        for place in one.encoders:
            behind = place.behind
            difference = TableCell(None) if behind is None else TableCell(100 * behind.value, 100 * behind.half_width)
            value = TableCell(100 * place.value.value, 100 * place.value.half_width)
            rows.append(TableRow(place.encoder, (value, difference), mark=f" ({place.groups})"))
        sections.append(TableSection(f"{one.metric}, {one.queries:,} queries", ("value", "less the best"), tuple(rows)))
    return sections


def to_csv(sections: Sequence[TableSection]) -> str:
    """One line per table, encoder and column."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(("table", "encoder", "source", "column", "value", "half_width"))
    for section in sections:
        for row in section.rows:
            source = "paper" if row.printed else "partial data" if row.mark == "*" else "measured"
            for column, cell in zip(section.columns, row.cells, strict=True):
                if cell.value is not None:
                    half = "" if cell.half_width is None else f"{cell.half_width:.4f}"
                    writer.writerow((section.title, row.encoder, source, column, f"{cell.value:.4f}", half))
    return stream.getvalue()


def to_markdown(sections: Sequence[TableSection]) -> str:
    """A heading and a table for each section."""
    lines = []
    for section in sections:
        lines += [f"## {section.title}", "", markdown_line(("encoder", *section.columns))]
        lines.append(markdown_line(("---", *("---:" for _ in section.columns))))
        lines += [markdown_line((_named(row), *(cell.text for cell in row.cells))) for row in section.rows]
        lines.append("")
    return "\n".join([*lines, legend(sections)]) + "\n"


def to_html(sections: Sequence[TableSection], title: str = "Published benchmarks") -> str:
    """One self-contained page."""
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined)
    template = environment.get_template("published.html.j2")
    style = (_TEMPLATES / "published.css").read_text("utf-8")
    return template.render(title=title, sections=sections, style=style, legend=legend(sections), named=_named)


FORMATS: dict[str, Callable[[Sequence[TableSection]], str]] = {"csv": to_csv, "markdown": to_markdown, "html": to_html}


def legend(sections: Sequence[TableSection]) -> str:
    """The meaning of the marks that occur."""
    rows = [row for section in sections for row in section.rows]
    parts = ["Shares times 100."]
    if any(cell.half_width is not None for row in rows for cell in row.cells):
        parts.append("±: half of the 95% bootstrap interval over queries.")
    if any(row.printed for row in rows):
        parts.append("(paper): value from the paper.")
    if any(row.mark.strip() in ("▲", "▼") for row in rows if row.mark):
        parts.append("▲ better, ▼ worse: the paired interval excludes 0. p: paired permutation test, two-sided.")
    if any(row.mark.startswith(" (") for row in rows):
        parts.append(f"(a): {GROUPS}")
    if any(row.mark == "*" for row in rows):
        parts.append("*: the data was not as published, so the value is not comparable.")
    return " ".join(parts)


def _named(row: TableRow) -> str:
    return f"{row.encoder} (paper)" if row.printed else f"{row.encoder}{row.mark}"


def _cell(value: Result | None) -> TableCell:
    if value is None:
        return TableCell(None)
    half = None if value.ci95 is None else 50 * (value.ci95[1] - value.ci95[0])
    return TableCell(100 * value.value, half)


def bars_of(reports: Sequence[PublishedReport], metrics: Sequence[str], by: Sequence[str], models: Path) -> go.Figure:
    """Bars of `metrics` for each encoder, or for the mean of encoders with equal settings (SemCLIP's figures 2 to 10).

    Args:
        by: settings of the encoders' method; an encoder without any of them has its own bar, as have weights that
            share a name, because the folder has only the last of them.
    """
    import plotly.graph_objects as go

    from components.report.plots import marker_style, set_layout

    named = encoder_names(reports)
    values = {(named(report), name): metric.value for report in reports for name, metric in report.metrics.items()}
    for metric in metrics:
        if not any(name == metric for _, name in values):
            raise InputError(f"--plot {metric}: no encoder has this metric: `cliptune table --groups` lists all")
    shown = dict.fromkeys(encoder for encoder, name in values if name in metrics)
    labels = {encoder: _label(models / encoder, by) for encoder in shown}
    for setting in by:
        if not any(f"{setting} " in label for label in labels.values()):
            raise InputError(f"--by {setting}: no encoder in {models} has this setting: choose a setting of its method")
    figure = go.Figure()
    for number, (label, encoders) in enumerate(map_reduce(labels, lambda encoder: labels[encoder]).items()):
        rows = [[values[name, metric] for name in encoders if (name, metric) in values] for metric in metrics]
        means = [100 * float(np.mean(row)) if row else None for row in rows]
        colour = marker_style(number)[0]
        figure.add_bar(name=label, x=list(metrics), y=means, marker_color=colour)
    return set_layout(figure, barmode="group", legend={"orientation": "h", "y": 1, "yanchor": "bottom"})


def _label(folder: Path, by: Sequence[str]) -> str:
    """Such as `n 2, learnable false`; the encoder's name if it has none of the settings."""
    settings = read_sidecar(folder).settings if by and (folder / SIDECAR).exists() else {}
    pairs = [f"{name} {str(settings[name]).lower()}" for name in by if name in settings]
    return ", ".join(pairs) or folder.name


def page_of(figure: go.Figure) -> str:
    """A self-contained page with a figure."""
    return str(figure.to_html(include_plotlyjs=True))
