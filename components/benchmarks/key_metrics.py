"""Which of an evaluation's metrics are shown where there is no room for all: short tables, MLflow's runs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from components.benchmarks.benchmark import Benchmark

_DEPTH = re.compile(r"_at_(\d+)$")


def key_metrics(benchmarks: Iterable[Benchmark[Any]], measured: Collection[str]) -> list[str]:
    """Full names of the metrics that `benchmarks` declare as their key metrics, as far as they were measured.

    Args:
        benchmarks: in the order in which their metrics are shown.
        measured: full metric names; of a metric's depths that nearest to the declared one is taken.
    """
    found = [_nearest(name, measured) for benchmark in benchmarks for name in benchmark.key_metrics]
    return list(dict.fromkeys(name for name in found if name in measured))


def tracked_metrics(benchmarks: Iterable[Benchmark[Any]], measured: Collection[str]) -> list[str]:
    """The key metrics, and all other metrics over all queries that have no depth, in the order of `measured`."""
    chosen = set(key_metrics(benchmarks, measured))
    return [name for name in measured if name in chosen or (name.count("/") == 1 and not _DEPTH.search(name))]


def _nearest(name: str, measured: Collection[str]) -> str:
    declared = _DEPTH.search(name)
    if declared is None:
        return name
    family, depth = name[: declared.start()], int(declared.group(1))
    depths = [int(found.group(1)) for found in (re.fullmatch(rf"{family}_at_(\d+)", one) for one in measured) if found]
    return f"{family}_at_{min(depths, key=lambda other: (abs(other - depth), other))}" if depths else name
