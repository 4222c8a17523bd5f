"""Declarations of metrics, and one encoder's values per query."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from components.core.compute.metrics import Indices, Reals, shared


@dataclass(frozen=True)
class Metric:
    """A metric: the last part of its full name with `k` for a depth, such as `ao_at_k`."""

    name: str
    higher_is_better: bool
    ties: str
    """The treatment of equal similarities, in words."""


def metrics(ties: str, *names: str, higher_is_better: bool = True) -> tuple[Metric, ...]:
    """Declarations of metrics that share direction and treatment of ties."""
    return tuple(Metric(name, higher_is_better, ties) for name in names)


@dataclass(frozen=True)
class Correlation:
    """A metric that is the correlation of two columns, `[rows]` each, such as human and cosine similarities.

    `tau_c` is Kendall's for columns of different numbers of distinct values.
    """

    kind: Literal["spearman", "pearson", "tau_c"]
    gold: Reals
    predicted: Reals


@dataclass(frozen=True)
class Scores:
    """The scores of one encoder on one or more benchmarks.

    Attributes:
        values: full metric name `<benchmark>/[<group>/]<metric>` -> one value per query `[queries]`.
        strata: for metrics that are a mean of group means, each query's group number `[queries]`.
        rankings: named top lists `[queries, depth]` of gallery rows, kept for the report's gallery.
        correlations: full metric name -> its columns.
        scalars: full metric name -> a value that is not a mean over queries, such as a standard error over seeds.
        pictures: full metric name -> number of each query's picture `[queries]`, or of its two `[queries, 2]`; kept
            only if a picture has several queries, whose values are then not independent.
    """

    values: dict[str, Reals]
    strata: dict[str, Indices] = field(default_factory=dict)
    rankings: dict[str, Indices] = field(default_factory=dict)
    correlations: dict[str, Correlation] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    pictures: dict[str, Indices] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in [name for name, pictures in self.pictures.items() if not shared(pictures)]:
            del self.pictures[name]

    def update(self, others: Scores) -> None:
        """Add the scores of another benchmark, whose metrics have other names."""
        for mine, theirs in zip(vars(self).values(), vars(others).values(), strict=True):
            mine.update(theirs)


def grouped(
    benchmark: str,
    columns: Mapping[str, Reals],
    pictures: Indices,
    groups: Mapping[str, Sequence[str]] = MappingProxyType({}),
    within: Collection[str] | None = None,
) -> Scores:
    """Values over all queries, `<benchmark>/<metric>`, and by group, `<benchmark>/<kind>_<group>/<metric>`.

    Args:
        benchmark: its name.
        columns: metric -> one value per query `[queries]`.
        pictures: the picture of each query, or its two.
        groups: kind of group -> the group of each query; groups come in the order in which they first occur.
        within: the metrics that are reported by group; None for all.
    """
    scores = Scores({})
    cuts = {"": np.ones(len(pictures), dtype=np.bool_)}
    for kind, labels in groups.items():
        cuts |= {f"{kind}_{group}/": np.array(labels) == group for group in dict.fromkeys(labels)}
    for group, chosen in cuts.items():
        shown = [name for name in columns if not group or within is None or name in within]
        values = {f"{benchmark}/{group}{name}": columns[name][chosen] for name in shown}
        scores.update(Scores(values, pictures=dict.fromkeys(values, pictures[chosen])))
    return scores
