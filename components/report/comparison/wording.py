"""The comparison in words and numbers for people: headline, cells, Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from components.benchmarks.bootstrap import Interval
from components.report.comparison.comparison import Cell, Comparison, best_encoder

LEGEND = (
    "Values times 100, ± half of the 95% bootstrap interval over queries; differences to {reference} "
    "with their paired-bootstrap interval, ▲ better or ▼ worse where it excludes 0."
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
    """An arrow where the difference's interval excludes 0."""
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
