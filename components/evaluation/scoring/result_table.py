"""A table of results: rows of values with intervals, differences and marks; renderers show it in their formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Literal

from components.evaluation.scoring.intervals import Interval

Source = Literal["measured", "partial data", "paper"]
_SUFFIXES: Mapping[Source, str] = {"measured": "", "partial data": "*", "paper": " (paper)"}
_MARKS = {"better": "▲", "worse": "▼", "": ""}


@dataclass(frozen=True)
class Difference:
    """A paired difference of two shares with its interval, shown in signed points."""

    value: Interval
    higher_is_better: bool = True
    is_clear: bool = True
    """Whether it differs from 0 also beside all others that are shown with it."""

    @property
    def verdict(self) -> str:
        """`better` or `worse` if the interval excludes 0 and the difference is clear, else empty."""
        return self.value.verdict(self.higher_is_better) if self.is_clear else ""

    @property
    def mark(self) -> str:
        """An arrow for a verdict."""
        return _MARKS[self.verdict]

    @property
    def text(self) -> str:
        """Such as `+8.9 [+7.8, +10.1] ▲`."""
        return f"{signed(self.value.value)} {span_text(self.value)} {self.mark}".rstrip()


@dataclass(frozen=True)
class Cell:
    """A value, and its paired difference to a reference.

    Attributes:
        value: the ends of its interval are NaN if it has none, and endless where there are too few queries.
        delta: None for the reference, and for a metric without values per query.
        digits: decimals of the value.
        scale: factor of the shown numbers; 1 for scores, distances and p.
    """

    value: Interval
    delta: Interval | None = None
    higher_is_better: bool = True
    digits: int = 1
    scale: float = 100.0
    is_clear: bool = True

    @property
    def difference(self) -> Difference | None:
        """The difference as a cell of its own."""
        return Difference(self.delta, self.higher_is_better, self.is_clear) if self.delta else None

    @property
    def verdict(self) -> str:
        """That of the difference; empty without one."""
        return self.difference.verdict if self.difference else ""

    @property
    def mark(self) -> str:
        """The arrow of the difference."""
        return _MARKS[self.verdict]

    @property
    def value_text(self) -> str:
        """Such as `71.2 ±1.3`."""
        value = f"{self.scale * self.value.value:.{self.digits}f}"
        return f"{value} ±{self.scale * self.value.half_width:.1f}" if self.value.is_known else value

    @property
    def text(self) -> str:
        """Value and difference in one text."""
        return f"{self.value_text} ({self.difference.text})" if self.difference else self.value_text


def exact(value: float) -> Interval:
    """A value without an interval."""
    return Interval(value, nan, nan)


def number(value: float | None, digits: int = 1, scale: float = 100.0) -> Cell | None:
    """A cell of a value without an interval; None if it is missing."""
    return None if value is None else Cell(exact(value), digits=digits, scale=scale)


def signed(share: float) -> str:
    """A share as signed points."""
    return f"{100 * share:+.1f}"


def span_text(delta: Interval) -> str:
    """Such as `[+7.8, +10.1]`."""
    return f"[{signed(delta.low)}, {signed(delta.high)}]" if delta.is_known else "[too few queries]"


def least_text(least: float) -> str:
    """What queries show, such as `differences from 1.6 points on (power 80%)`; nothing if `least` is endless."""
    if not isfinite(least):
        return "no difference: they are too few"
    return f"differences from {100 * least:.1f} points on (power 80%)"


def ends_text(value: Interval) -> str:
    """Such as `69.9 to 72.5`; empty without an interval."""
    return f"{100 * value.low:.1f} to {100 * value.high:.1f}" if value.is_known else ""


@dataclass(frozen=True)
class ResultRow:
    """A row: the name of a metric or an encoder, and a cell or a text for each further column.

    Neighbours with the same `section` are below one heading, without this prefix of their names.
    """

    name: str
    cells: Sequence[Cell | Difference | str | None]
    section: str = ""
    source: Source = "measured"

    @property
    def label(self) -> str:
        """The name, with a mark for partial data and for values of a paper."""
        return self.name + _SUFFIXES[self.source]

    @property
    def short_label(self) -> str:
        """The label below the heading of its section."""
        return self.label.removeprefix(f"{self.section}/")


@dataclass(frozen=True)
class ResultTable:
    """Rows of results below the names of their columns, of which the first one names the rows.

    `notes` are sentences on marks and intervals; pages with several tables have each of them once.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[ResultRow]
    notes: Sequence[str] = ()

    @property
    def sections(self) -> dict[str, list[ResultRow]]:
        """Rows by section, in order."""
        sections: dict[str, list[ResultRow]] = {}
        for row in self.rows:
            sections.setdefault(row.section, []).append(row)
        return sections

    @property
    def is_number(self) -> list[bool]:
        """Whether a column has no texts, for each after the first."""
        places = range(len(self.columns) - 1)
        return [not any(isinstance(row.cells[place], str) for row in self.rows) for place in places]
