"""Results on published benchmarks as CSV, Markdown and HTML, and paired tests: is one encoder really better?"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from more_itertools import map_reduce

from components.benchmarks.bootstrap import Interval, paired_difference, sign_flip_p
from components.core.errors import InputError
from components.evaluation.results import PublishedReport, Result, read_scores
from components.report.comparison import markdown_line
from components.report.published.paper_tables import Collection, Column

_RESAMPLES = 2000


@dataclass(frozen=True)
class Pair:
    """One metric of an encoder less that of another on the same queries.

    Attributes:
        metric: its full name.
        encoder: whose value is looked at.
        against: whose value it is compared with.
        value, other: their values.
        difference: `value` less `other`, with its paired-bootstrap interval.
        p: two-sided, of the paired permutation test; None for correlations and for queries about two pictures.
        higher_is_better: the metric's direction.
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
        """`better` or `worse` where the interval excludes 0, else empty."""
        return self.difference.verdict(self.higher_is_better)


def encoder_names(reports: Sequence[PublishedReport]) -> Callable[[PublishedReport], str]:
    """What an encoder is called in tables: its name, and the start of its hash where other weights have this name."""
    weights = map_reduce(reports, lambda one: one.encoder, lambda one: one.encoder_sha256, frozenset)
    return lambda one: one.encoder if len(weights[one.encoder]) == 1 else f"{one.encoder} {one.encoder_sha256[:8]}"


def _shown(names: Sequence[str], *, groups: bool) -> list[str]:
    """The metrics over all queries; those by group of queries if asked for, or if there are no others."""
    plain = [name for name in names if name.count("/") == 1]
    return list(names) if groups or not plain else plain


def paired(
    reports: Sequence[PublishedReport], against: str, folder: Path, seed: int = 0, *, groups: bool = False
) -> list[Pair]:
    """Every encoder compared with `against` on every benchmark that both were scored on.

    Args:
        against: its name as tables print it, with the start of the hash where other weights share the name.
        groups: compare metrics by group of queries, too.

    Raises:
        InputError: `against` has no results, or two results are of different data, options or protocol versions.
    """
    named = encoder_names(reports)
    reference = {report.benchmark: report for report in reports if named(report) == against}
    if not reference:
        known = ", ".join(f"'{name}'" for name in dict.fromkeys(map(named, reports))) or "none"
        raise InputError(f"--against '{against}' has no results: choose one of {known}")
    found: list[Pair] = []
    for report in reports:
        other = reference.get(report.benchmark)
        if other is not None and named(report) != against:
            pairs = {pair.metric: pair for pair in _pairs(report, other, (named(report), named(other)), folder, seed)}
            found += [pairs[name] for name in _shown(list(pairs), groups=groups)]
    return found


def _pairs(
    report: PublishedReport, other: PublishedReport, names: tuple[str, str], folder: Path, seed: int
) -> list[Pair]:
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
            found.append(Pair(name, *names, *values, difference, p, value.higher_is_better))
    return found


_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Cell:
    """A value times 100 and half of its 95% interval; None where there is none."""

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
class Row:
    """One encoder: measured here, or as the paper prints it; `mark` says that data was not as published."""

    encoder: str
    cells: tuple[Cell, ...]
    printed: bool = False
    mark: str = ""


@dataclass(frozen=True)
class Section:
    """One table."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def paper_sections(collection: Collection, reports: Sequence[PublishedReport]) -> list[Section]:
    """A paper's tables with our rows first and its own below them."""
    sections = []
    for table in collection.tables:
        ours = []
        for encoder, own in map_reduce(reports, encoder_names(reports)).items():
            values = {name: one.value for report in own for name, one in report.metrics.items()}
            cells = tuple(_column_cell(column, column.value(values)) for column in table.columns)
            partial = {report.benchmark for report in own if report.partial}
            used = {metric.split("/", 1)[0] for column in table.columns for metric in column.metrics}
            if any(cell.value is not None for cell in cells):
                ours.append(Row(encoder, cells, mark="*" if partial & used else ""))
        printed = [
            Row(name, tuple(map(_column_cell, table.columns, figures)), printed=True)
            for name, figures in table.rows.items()
        ]
        columns = tuple(column.name for column in table.columns)
        sections.append(Section(f"{collection.paper}, {table.title}", columns, (*ours, *printed)))
    return sections


def metric_sections(reports: Sequence[PublishedReport], *, groups: bool = False) -> list[Section]:
    """A table per benchmark: every metric, encoders side by side; values by group only if asked for."""
    sections = []
    named = encoder_names(reports)
    encoders = list(dict.fromkeys(map(named, reports)))
    for benchmark, scored in map_reduce(reports, lambda report: report.benchmark).items():
        names = list(dict.fromkeys(name for report in scored for name in report.metrics))
        shown = _shown(names, groups=groups)
        rows = tuple(
            Row(
                named(report),
                tuple(_cell(report.metrics.get(name)) for name in shown),
                mark="*" if report.partial else "",
            )
            for report in sorted(scored, key=lambda report: encoders.index(named(report)))
        )
        columns = tuple(name.removeprefix(f"{benchmark}/") for name in shown)
        protocol = f"{benchmark}, version {scored[0].version} ({scored[0].protocol})"
        sections.append(Section(protocol, columns, rows))
    return sections


def paired_sections(pairs: Sequence[Pair]) -> list[Section]:
    """A table per encoder: its metrics beside those of the encoder it is compared with, and what the tests say."""
    sections = []
    for (encoder, against), own in map_reduce(pairs, lambda pair: (pair.encoder, pair.against)).items():
        rows = tuple(
            Row(
                pair.metric,
                (
                    Cell(100 * pair.value),
                    Cell(100 * pair.other),
                    Cell(100 * pair.difference.value, 100 * pair.difference.half_width),
                    Cell(pair.p, digits=4),
                ),
                mark={"better": " ▲", "worse": " ▼", "": ""}[pair.verdict],
            )
            for pair in own
        )
        columns = (encoder, against, "difference", "p")
        sections.append(Section(f"{encoder} against {against}, same queries", columns, rows))
    return sections


def to_csv(sections: Sequence[Section]) -> str:
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


def to_markdown(sections: Sequence[Section]) -> str:
    """A heading and a table for each section."""
    lines = []
    for section in sections:
        lines += [f"## {section.title}", "", markdown_line(("encoder", *section.columns))]
        lines.append(markdown_line(("---", *("---:" for _ in section.columns))))
        lines += [markdown_line((_named(row), *(cell.text for cell in row.cells))) for row in section.rows]
        lines.append("")
    return "\n".join([*lines, legend(sections)]) + "\n"


def to_html(sections: Sequence[Section]) -> str:
    """One page with everything in it."""
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined)
    template = environment.get_template("published.html.j2")
    style = (_TEMPLATES / "published.css").read_text("utf-8")
    return template.render(sections=sections, style=style, legend=legend(sections), named=_named)


FORMATS: dict[str, Callable[[Sequence[Section]], str]] = {"csv": to_csv, "markdown": to_markdown, "html": to_html}


def legend(sections: Sequence[Section]) -> str:
    """What the marks mean; only those that occur."""
    rows = [row for section in sections for row in section.rows]
    parts = ["Shares times 100."]
    if any(cell.half_width is not None for row in rows for cell in row.cells):
        parts.append("±: half of the 95% bootstrap interval over queries.")
    if any(row.printed for row in rows):
        parts.append("(paper): as the paper prints it.")
    if any(row.mark.strip() in ("▲", "▼") for row in rows if row.mark):
        parts.append("▲ better, ▼ worse: the paired interval excludes 0. p: paired permutation test, two-sided.")
    if any(row.mark == "*" for row in rows):
        parts.append("*: the data was not as published, so the value is not comparable.")
    return " ".join(parts)


def _named(row: Row) -> str:
    return f"{row.encoder} (paper)" if row.printed else f"{row.encoder}{row.mark}"


def _column_cell(column: Column, value: float | None) -> Cell:
    return Cell(value, digits=1 if column.scale == 100 else 2)


def _cell(value: Result | None) -> Cell:
    if value is None:
        return Cell(None)
    half = None if value.ci95 is None else 50 * (value.ci95[1] - value.ci95[0])
    return Cell(100 * value.value, half)
