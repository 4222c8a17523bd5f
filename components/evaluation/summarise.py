"""From values per query to results: every metric's value with its bootstrap interval."""

from __future__ import annotations

from typing import Any

from components.benchmarks.benchmark import Benchmark
from components.benchmarks.bootstrap import correlation_interval, interval
from components.benchmarks.scores import Scores
from components.core.metrics import finite
from components.evaluation.results import Result


def summarise(benchmark: Benchmark[Any], scores: Scores, resamples: int, seed: int) -> dict[str, Result]:
    """Results of all metrics that the benchmark found, in the order in which it reports them.

    Args:
        benchmark: declares each metric's direction.
        scores: its values; metrics without any query have no result.
        resamples: of each interval.
        seed: of the resampling.
    """
    found: dict[str, Result] = {}

    def add(name: str, value: float, ci95: tuple[float, float] | None, queries: int | None) -> None:
        higher = benchmark.metric(name).higher_is_better
        found[name] = Result(value=value, ci95=ci95, higher_is_better=higher, queries=queries)

    for name, values in scores.values.items():
        if len(values):
            mean = interval(values, resamples, seed, scores.strata.get(name), scores.pictures.get(name))
            add(name, mean.value, (mean.low, mean.high), len(values))
    for name, columns in scores.correlations.items():
        estimate = correlation_interval(columns, resamples, seed)
        add(name, estimate.value, (estimate.low, estimate.high), len(columns.gold))
    finite(*scores.scalars.values())
    for name, scalar in scores.scalars.items():
        add(name, float(scalar), None, None)
    return found
