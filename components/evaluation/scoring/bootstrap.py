"""Bootstrap intervals of means over queries and of correlations, and tests of paired differences.

Queries about one picture succeed and fail together, so pictures are resampled if they have several queries. This is
the reason for own code: scipy.stats.bootstrap resamples single values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from components.core.compute.metrics import Indices, Reals, finite, row_correlations
from components.evaluation.scoring.benchmark import Correlation
from components.evaluation.scoring.intervals import Estimate

_CELLS = 4_000_000
"""Resampled values held in memory at once."""


@dataclass(frozen=True)
class Interval:
    """A value and its 95% interval."""

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

    def verdict(self, higher_is_better: bool) -> str:
        """Of a difference: `better` or `worse` if the interval excludes 0, otherwise empty."""
        if not self.excludes_zero:
            return ""
        return "better" if (self.value > 0) == higher_is_better else "worse"


def interval(
    values: Reals, resamples: int, seed: int, strata: Indices | None = None, pictures: Indices | None = None
) -> Interval:
    """The mean of `values` `[queries]` with the percentile interval of multinomial resamples of the queries.

    Equal numbers of queries and equal seeds have equal resamples. The interval of a difference of two encoders is that
    of their difference per query (paired bootstrap).

    If pictures have several queries, pictures are drawn, each with all its queries (cluster bootstrap). Queries about
    two pictures have no such clusters: their resamples are stretched until their standard error is the dyadic-robust
    one (Aronow, Samii and Assenova 2015, arXiv 1312.3398).

    Args:
        strata: group of each query `[queries]`; then the value is the mean over groups of each group's mean,
            and queries are resampled within their group. Groups of one query are resampled together.
        pictures: number of each query's picture `[queries]`, or of its two `[queries, 2]`; None if no picture has two
            queries.
    """
    return _interval(*_mean_and_resamples(values, resamples, seed, strata, pictures))


def _interval(value: float, resampled: Reals) -> Interval:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Interval(value, float(low), float(high))


def _mean_and_resamples(
    values: Reals, resamples: int, seed: int, strata: Indices | None, pictures: Indices | None
) -> tuple[float, Reals]:
    """The mean, and that of each resample `[resamples]`; parameters as in `interval`."""
    finite(values)
    groups = [values] if strata is None else [values[strata == stratum] for stratum in np.unique(strata)]
    value = float(np.mean([group.mean() for group in groups]))
    generator = np.random.default_rng(seed)
    if pictures is not None and pictures.ndim == 1:
        means = _means_of_pictures(values, _numbered(strata, len(values)), pictures, resamples, generator)
    else:
        means = _means_of_groups(groups, resamples, generator)
    if pictures is not None and pictures.ndim == 2:
        means = value + (means - value) * _stretch(values, _numbered(strata, len(values)), pictures)
    return value, means


def _numbered(strata: Indices | None, queries: int) -> Indices:
    """Each query's group `[queries]`, counted from 0."""
    if strata is None:
        return np.zeros(queries, dtype=np.int64)
    return np.unique(strata, return_inverse=True)[1].astype(np.int64)


def _means_of_groups(groups: list[Reals], resamples: int, generator: np.random.Generator) -> Reals:
    """Means over groups of resampled group means `[resamples]`."""
    single = [group for group in groups if len(group) == 1]
    drawn = [resampled_means(group, resamples, generator) for group in groups if len(group) > 1 or len(single) == 1]
    if len(single) > 1:
        drawn += [resampled_means(np.concatenate(single), resamples, generator)] * len(single)
    return np.asarray(np.mean(drawn, axis=0))


def _means_of_pictures(
    values: Reals, groups: Indices, pictures: Indices, resamples: int, generator: np.random.Generator
) -> Reals:
    """Means over groups of the group means of resampled pictures `[resamples]`.

    Pictures are drawn within their group; if one has queries in several groups, all are drawn together, and a resample
    skips groups without pictures.
    """
    from scipy.sparse import csr_array

    owner = np.unique(pictures, return_inverse=True)[1]
    cells = np.unique(np.stack([owner, groups]), axis=1)
    count = int(owner.max()) + 1
    pools = np.zeros(count, dtype=np.int64)
    if cells.shape[1] == count:
        pools = cells[1]
        pools = np.where(np.bincount(pools)[pools] > 1, pools, pools.max() + 1)
    shape = (count, int(groups.max()) + 1)
    sums = csr_array((values, (owner, groups)), shape)
    sizes = csr_array((np.ones(len(values)), (owner, groups)), shape)
    means = []
    for draws in _chunks(resamples, count):
        times = np.zeros((draws, count))
        for pool in np.unique(pools):
            members = np.flatnonzero(pools == pool)
            drawn = generator.integers(0, len(members), size=(draws, len(members)))
            drawn += len(members) * np.arange(draws)[:, None]
            times[:, members] = np.bincount(drawn.ravel(), minlength=drawn.size).reshape(drawn.shape)
        total, size = times @ sums, times @ sizes
        means.append((total / np.maximum(size, 1)).sum(axis=1) / (size > 0).sum(axis=1))
    return np.concatenate(means)


def _stretch(values: Reals, groups: Indices, pictures: Indices) -> float:
    """Ratio of the dyadic-robust standard error to that of independent queries; at least 1."""
    sizes = np.bincount(groups)
    influence = (values - (np.bincount(groups, values) / sizes)[groups]) / sizes[groups]
    ends = np.unique(pictures, return_inverse=True)[1].reshape(pictures.shape)
    pairs = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True)[1].ravel()
    of_pictures = sum(np.bincount(side, influence, ends.max() + 1) for side in ends.T)
    # Queries about the same two pictures are in the sums of both.
    robust = np.square(of_pictures).sum() - np.square(np.bincount(pairs, influence)).sum()
    independent = np.square(influence).sum()
    return float(np.sqrt(max(1.0, robust / independent))) if independent else 1.0


def resampled_means(values: Reals, resamples: int, generator: np.random.Generator) -> Reals:
    """Means of `resamples` draws of all queries with replacement `[resamples]`, drawn in chunks."""
    return _resampled(lambda drawn: values[drawn].mean(axis=1), len(values), resamples, generator)


def resampled_correlations(
    correlation: Correlation, resamples: int, generator: np.random.Generator, pictures: Indices | None = None
) -> Reals:
    """Correlations of `resamples` draws of all rows with replacement `[resamples]`, drawn in chunks.

    With `pictures`, the picture of each row `[rows]`, pictures are drawn, each with all its rows.
    """
    finite(correlation.gold, correlation.predicted)
    if pictures is None:
        return _resampled(lambda drawn: _correlations(correlation, drawn), len(correlation.gold), resamples, generator)
    order = np.argsort(pictures, kind="stable")
    rows_of = np.split(order, np.flatnonzero(np.diff(pictures[order])) + 1)
    draws = generator.integers(0, len(rows_of), size=(resamples, len(rows_of)))
    drawn = (np.concatenate([rows_of[picture] for picture in draw]) for draw in draws)
    return np.array([_correlations(correlation, rows[None])[0] for rows in drawn])


def _resampled(value: Callable[[Indices], Reals], rows: int, resamples: int, generator: np.random.Generator) -> Reals:
    """`value` of random row numbers `[draws, rows]`, for all draws `[resamples]`."""
    return np.concatenate([value(generator.integers(0, rows, size=(size, rows))) for size in _chunks(resamples, rows)])


def _chunks(resamples: int, rows: int) -> Iterator[int]:
    """Numbers of resamples that are drawn at once."""
    chunk = max(1, _CELLS // rows)
    for start in range(0, resamples, chunk):
        yield min(chunk, resamples - start)


def correlation_value(correlation: Correlation) -> float:
    """The correlation of its two columns; ties share the mean of their ranks, and a constant column has 0."""
    finite(correlation.gold, correlation.predicted)
    return float(_correlations(correlation, np.arange(len(correlation.gold))[None])[0])


def correlation_interval(
    correlation: Correlation, resamples: int, seed: int, pictures: Indices | None = None
) -> Interval:
    """A correlation with the percentile interval of resamples of rows or `pictures`, each ranked again."""
    drawn = resampled_correlations(correlation, resamples, np.random.default_rng(seed), pictures)
    return _interval(correlation_value(correlation), drawn)


def correlation_difference(
    first: Correlation, second: Correlation, pictures: Indices | None = None, resamples: int = 1000, seed: int = 0
) -> Estimate:
    """The first correlation less the second on the same rows, with the error of resamples that both share."""
    value, resampled = _difference_and_resamples(first, second, resamples, seed, None, pictures)
    units = len(first.gold) if pictures is None else len(np.unique(pictures))
    return Estimate(value, np.full(units, resampled.std() / np.sqrt(units)), math.inf)


def paired_difference(
    first: Reals | Correlation,
    second: Reals | Correlation,
    resamples: int,
    seed: int,
    strata: Indices | None = None,
    pictures: Indices | None = None,
) -> Interval:
    """The first encoder's value less the second's, with the interval of resamples that both share (paired bootstrap).

    Both are values per query, or correlations, on the same rows; the rest is as in `interval`, without strata for
    correlations.

    Raises:
        ValueError: one has values and the other a correlation, or they differ in kind or rows.
    """
    return _interval(*_difference_and_resamples(first, second, resamples, seed, strata, pictures))


def difference_over_seeds(
    first: Sequence[Reals | Correlation],
    second: Sequence[Reals | Correlation],
    resamples: int,
    seed: int,
    strata: Indices | None = None,
    pictures: Indices | None = None,
) -> Interval:
    """The mean difference of encoders trained with several seeds, with an interval over seeds and queries.

    Each resample draws seeds with replacement and queries with replacement, the same queries for all seeds (the
    pigeonhole bootstrap of crossed factors: Owen 2007, arXiv 0712.1111). With three seeds the interval is about as wide
    as the range of their values. `first` and `second` hold the arguments of `paired_difference` for each seed.

    Raises:
        ValueError: the numbers of seeds differ, or as `paired_difference`.
    """
    of_seeds = [
        _difference_and_resamples(one, other, resamples, seed, strata, pictures)
        for one, other in zip(first, second, strict=True)
    ]
    means = np.stack([resampled for _, resampled in of_seeds])
    drawn = np.random.default_rng([seed, len(of_seeds)]).integers(len(of_seeds), size=means.shape)
    return _interval(float(np.mean([value for value, _ in of_seeds])), np.take_along_axis(means, drawn, 0).mean(axis=0))


def _difference_and_resamples(
    first: Reals | Correlation,
    second: Reals | Correlation,
    resamples: int,
    seed: int,
    strata: Indices | None,
    pictures: Indices | None,
) -> tuple[float, Reals]:
    if isinstance(first, Correlation) and isinstance(second, Correlation):
        if first.kind != second.kind or not np.array_equal(first.gold, second.gold):
            raise ValueError("correlations of different kind or rows have no paired difference")
        both = first, second
        draws = [resampled_correlations(one, resamples, np.random.default_rng(seed), pictures) for one in both]
        return correlation_value(first) - correlation_value(second), draws[0] - draws[1]
    return _mean_and_resamples(_difference(first, second), resamples, seed, strata, pictures)


def sign_flip_p(
    first: Reals,
    second: Reals,
    resamples: int,
    seed: int,
    strata: Indices | None = None,
    pictures: Indices | None = None,
) -> float:
    """Two-sided p-value of the paired permutation test, which swaps the encoders' values `[queries]` of random queries.

    The values of all queries about one picture are swapped together. The test counts the sign flips whose mean
    difference is at least as far from 0 as the measured one, which is one of them, so that p is never 0 (Phipson and
    Smyth 2010). `strata` and `pictures` are as in `interval`.

    Raises:
        ValueError: the values differ in number, or queries are about two pictures, which cannot be swapped.
    """
    difference = _difference(first, second)
    if strata is not None:
        _, group, sizes = np.unique(strata, return_inverse=True, return_counts=True)
        difference = difference / sizes[group]
    if pictures is not None:
        if pictures.ndim > 1:
            raise ValueError("queries about two pictures have no permutation test")
        difference = np.asarray(np.bincount(np.unique(pictures, return_inverse=True)[1], difference), dtype=np.float64)
    # Sums of few distinct values that only differ by rounding are equal.
    bound = abs(difference.sum()) - 1e-12 * np.abs(difference).sum()
    generator = np.random.default_rng(seed)
    beyond = 0
    for draws in _chunks(resamples, len(difference)):
        signs = np.where(generator.random((draws, len(difference))) < 0.5, -1.0, 1.0)
        beyond += int((np.abs(signs @ difference) >= bound).sum())
    return (beyond + 1) / (resamples + 1)


def _difference(first: Reals | Correlation, second: Reals | Correlation) -> Reals:
    if isinstance(first, Correlation) or isinstance(second, Correlation) or first.shape != second.shape:
        raise ValueError("only values of the same queries have a paired difference")
    finite(first, second)
    return first - second


def _correlations(correlation: Correlation, drawn: Indices) -> Reals:
    """The correlation of each row of `drawn`, row numbers `[resamples, rows]`; 0 if a column is constant."""
    gold, predicted = correlation.gold[drawn], correlation.predicted[drawn]
    if correlation.kind == "tau_c":
        return np.array([_tau_c(*columns) for columns in zip(gold, predicted, strict=True)])
    if correlation.kind == "spearman":
        from scipy.stats import rankdata

        gold, predicted = rankdata(gold, axis=1), rankdata(predicted, axis=1)
    return row_correlations(gold, predicted)


def _tau_c(gold: Reals, predicted: Reals) -> float:
    from scipy.stats import kendalltau

    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return 0.0
    return float(kendalltau(gold, predicted, variant="c", method="asymptotic").statistic)
