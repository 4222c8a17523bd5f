"""Benchmark families: one number per benchmark and encoder, for plots that show all benchmarks at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from components.report.comparison.comparison import Cell, Comparison
from components.report.plots.bars import main_metrics


@dataclass(frozen=True)
class Family:
    """A benchmark as one axis.

    Attributes:
        name: the first part of its metrics' names.
        metrics: full names of those that its value is the mean of.
        values: encoder -> value in [0, 1], larger is better.
    """

    name: str
    metrics: tuple[str, ...]
    values: dict[str, float]


def families(comparison: Comparison, primary: str) -> tuple[list[Family], list[str]]:
    """One family per benchmark in the order reported, and the metrics that fit on no axis from 0 to 1.

    A family's value is the mean of its metrics over all queries: at the primary metric's depth or without a depth
    where there are such, else all. Of a metric where lower is better, one less its value is taken.
    """
    usable = [name for name in comparison.cells if name.count("/") == 1]
    left_out = [name for name in usable if not _is_share(comparison.cells[name])]
    main = set(main_metrics(comparison, primary))
    found = []
    for benchmark in dict.fromkeys(name.split("/")[0] for name in usable):
        own = [name for name in usable if name.split("/")[0] == benchmark and name not in left_out]
        chosen = tuple(name for name in own if name in main) or tuple(own)
        if chosen:
            values = {
                encoder: float(np.mean([_goodness(comparison.cells[name][encoder]) for name in chosen]))
                for encoder in comparison.encoders
            }
            found.append(Family(benchmark, chosen, values))
    return found, left_out


def explain(family: Family) -> str:
    """What the family's value is, in words."""
    names = [name.split("/", 1)[1] for name in family.metrics]
    return names[0] if len(names) == 1 else f"mean of {', '.join(names)}"


def _is_share(row: dict[str, Cell]) -> bool:
    return all(0 <= cell.value.value <= 1 for cell in row.values())


def _goodness(cell: Cell) -> float:
    return cell.value.value if cell.higher_is_better else 1 - cell.value.value
