"""Bootstrap intervals of a mean over queries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.evaluation.metrics import Reals

_CELLS = 4_000_000
"""Resampled values held in memory at once."""


@dataclass(frozen=True)
class Interval:
    """A mean and its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval's length."""
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval is on one side of 0."""
        return self.low > 0 or self.high < 0


def interval(values: Reals, resamples: int, seed: int, strata: npt.NDArray[np.int64] | None = None) -> Interval:
    """The mean of `values` with the percentile interval of `resamples` multinomial resamples of the queries.

    The same number of queries and the same seed give the same resamples. The interval of a difference
    of two encoders is that of their difference per query (paired bootstrap).

    Args:
        values: one value per query `[queries]`, at least one.
        resamples: how many resamples are drawn.
        seed: seed of the resampling.
        strata: group of each query `[queries]`; then the value is the mean over groups of each group's mean,
            and queries are resampled within their group.
    """
    groups = [values] if strata is None else [values[strata == stratum] for stratum in np.unique(strata)]
    generator = np.random.default_rng(seed)
    means = np.mean([resampled_means(group, resamples, generator) for group in groups], axis=0)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(np.mean([group.mean() for group in groups])), float(low), float(high))


def resampled_means(values: Reals, resamples: int, generator: np.random.Generator) -> Reals:
    """Means of `resamples` draws of all queries with replacement `[resamples]`, drawn in chunks."""
    means = np.empty(resamples, dtype=np.float64)
    chunk = max(1, _CELLS // len(values))
    for start in range(0, resamples, chunk):
        stop = min(start + chunk, resamples)
        drawn = generator.integers(0, len(values), size=(stop - start, len(values)))
        means[start:stop] = values[drawn].mean(axis=1)
    return means
