"""What the study shows besides claims: a table of all encoders, who is best for all needs, and what was forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from components.benchmarks.bootstrap import Interval
from components.report.comparison import Cell, Comparison
from components.study.results import Results


def comparison_over_seeds(results: Results, metrics: Sequence[str]) -> Comparison:
    """Means over the seeds and differences to the first encoder, of the metrics that every encoder was scored by."""
    reference = results.encoders[0]
    cells: dict[str, dict[str, Cell]] = {}
    for metric in metrics:
        if not all(results.measures(encoder, metric) for encoder in results.encoders):
            continue
        higher = results.higher_is_better(metric)
        cells[metric] = {
            encoder: Cell(
                results.value(encoder, metric).mean,
                results.difference(encoder, reference, metric).mean if encoder != reference else None,
                higher,
            )
            for encoder in results.encoders
        }
    return Comparison(tuple(results.encoders), cells)


@dataclass(frozen=True)
class Need:
    """One encoder at one need of users.

    Attributes:
        value: mean over the seeds.
        shortfall: how much worse it is than the best encoder at this need, with its interval; 0 of the best.
    """

    value: Interval
    shortfall: Interval

    @property
    def is_met(self) -> bool:
        """Whether it could be as good as the best: the interval of its shortfall reaches 0."""
        return self.shortfall.low <= 0


@dataclass(frozen=True)
class AllNeeds:
    """One encoder at all needs."""

    encoder: str
    needs: Mapping[str, Need]

    @property
    def worst(self) -> float:
        """The largest shortfall: what encoders for all needs are ranked by, the smallest being best."""
        return max(need.shortfall.value for need in self.needs.values())

    @property
    def met(self) -> int:
        """How many needs it could be the best at."""
        return sum(need.is_met for need in self.needs.values())


def rank_for_all_needs(results: Results, families: Mapping[str, str]) -> list[AllNeeds]:
    """All encoders, the one with the smallest of largest shortfalls first.

    Args:
        families: need -> metric; those that were not measured are left out.
    """
    asked = {need: metric for need, metric in families.items() if _measured(results, metric)}
    best = {need: _best(results, metric) for need, metric in asked.items()}
    found = [
        AllNeeds(
            encoder,
            {
                need: Need(results.value(encoder, metric).mean, results.improvement(best[need], encoder, metric).mean)
                for need, metric in asked.items()
            },
        )
        for encoder in results.encoders
    ]
    return sorted(found, key=lambda one: one.worst) if asked else []


def _measured(results: Results, metric: str) -> bool:
    return all(results.measures(encoder, metric) for encoder in results.encoders)


def _best(results: Results, metric: str) -> str:
    return max(results.encoders, key=lambda encoder: results.improvement(encoder, 0.0, metric).mean.value)


def forgotten(comparison: Comparison) -> dict[str, list[tuple[str, Interval]]]:
    """Encoder -> the metrics at which it is worse than the first beyond chance, and by how much; worst first."""
    found: dict[str, list[tuple[str, Interval]]] = {}
    for encoder in comparison.encoders[1:]:
        losses = [
            (metric, row[encoder].delta) for metric, row in comparison.cells.items() if row[encoder].verdict == "worse"
        ]
        known = [(metric, delta) for metric, delta in losses if delta is not None]
        found[encoder] = sorted(known, key=lambda loss: -abs(loss[1].value))
    return found
