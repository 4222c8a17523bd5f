"""Encoders side by side: values, and paired differences to the first one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from components.benchmarks.bootstrap import Interval, interval
from components.benchmarks.scores import Scores
from components.core.errors import InputError
from components.evaluation.results import Report


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

    def names(self, grouped: bool) -> list[str]:
        """Metric names: those of values over all queries, or by group of queries."""
        return [name for name in self.cells if (name.count("/") > 1) == grouped]

    @staticmethod
    def sections(names: Iterable[str]) -> dict[str, list[str]]:
        """Metric names by everything before their last part."""
        found: dict[str, list[str]] = {}
        for name in names:
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
            about = found.strata.get(name), found.pictures.get(name)
            delta = interval(difference, resamples, seed, *about) if report is not first else None
            cells[name][report.encoder] = Cell(Interval(result.value, *result.span), delta, result.higher_is_better)
    return Comparison(tuple(report.encoder for report in reports), cells)


def best_encoder(comparison: Comparison, primary: str) -> str:
    """The encoder with the best value of `primary`; the earlier one of equals."""
    row = comparison.cells[primary]
    sign = 1 if next(iter(row.values())).higher_is_better else -1
    return max(row, key=lambda encoder: sign * row[encoder].value.value)


def best_challenger(comparison: Comparison, primary: str) -> str:
    """The best encoder but for the reference; the last one where it is alone or `primary` was not measured."""
    row = {name: cell for name, cell in comparison.cells.get(primary, {}).items() if name != comparison.reference}
    if not row:
        return comparison.encoders[-1]
    return best_encoder(Comparison(tuple(row), {primary: row}), primary)
