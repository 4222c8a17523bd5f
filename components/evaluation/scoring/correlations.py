"""Correlations of encoders with given ranks, and their intervals: percentiles of resampled rows or pictures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from components.core.compute.metrics import Indices, Reals, finite, row_correlations
from components.evaluation.scoring.benchmark import Correlation
from components.evaluation.scoring.intervals import FEWEST, LEVEL, Estimate, Interval, over_seeds

_CELLS = 4_000_000
"""Resampled values held in memory at once."""


def correlation_value(correlation: Correlation) -> float:
    """The correlation of its two columns; ties share the mean of their ranks, and a constant column has 0."""
    finite(correlation.gold, correlation.predicted)
    return float(_correlations(correlation, np.arange(len(correlation.gold))[None])[0])


def correlation_interval(
    correlation: Correlation, resamples: int, seed: int, pictures: Indices | None = None
) -> Interval:
    """A correlation with the percentile interval of resamples of rows or `pictures`, each ranked again."""
    drawn = _resampled(correlation, resamples, seed, pictures)
    return _percentiles(correlation_value(correlation), drawn, _units(correlation, pictures))


def correlation_difference(
    first: Sequence[Correlation],
    second: Sequence[Correlation],
    resamples: int,
    seed: int,
    pictures: Indices | None = None,
    level: float = LEVEL,
) -> Interval:
    """The first encoder's correlation less the second's, with the interval of resamples that both share.

    Both hold one correlation for each training seed, all on the same rows; several seeds vary as in
    `interval_over_seeds`.

    Raises:
        ValueError: they differ in kind, rows or number.
    """
    values, drawn = _differences(first, second, resamples, seed, pictures)
    if len(values) == 1:
        return _percentiles(float(values[0]), drawn[0], _units(first[0], pictures), level)
    mean = drawn.mean(axis=0)
    together = _estimate(float(values.mean()), mean, len(mean))
    return over_seeds(values, together, float(np.square((drawn - mean).std(axis=1)).sum()), level)


def correlation_estimate(
    first: Correlation, second: Correlation, resamples: int, seed: int, pictures: Indices | None = None
) -> Estimate:
    """The difference of two correlations with the standard error of its resamples, for the gate."""
    values, drawn = _differences([first], [second], resamples, seed, pictures)
    return _estimate(float(values[0]), drawn[0], _units(first, pictures))


def _estimate(value: float, drawn: Reals, units: int) -> Estimate:
    """Parts of equal size, whose squares have the variance of the resamples."""
    return Estimate(value, np.full(units, drawn.std() / math.sqrt(units)), math.inf)


def _units(correlation: Correlation, pictures: Indices | None) -> int:
    return len(correlation.gold) if pictures is None else len(np.unique(pictures))


def _percentiles(value: float, drawn: Reals, units: int, level: float = LEVEL) -> Interval:
    if units < FEWEST:
        return Interval(value, -math.inf, math.inf)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    return Interval(value, float(low), float(high))


def _differences(
    first: Sequence[Correlation], second: Sequence[Correlation], resamples: int, seed: int, pictures: Indices | None
) -> tuple[Reals, Reals]:
    """The difference of each seed `[seeds]`, and of each of its resamples `[seeds, resamples]`."""
    values, drawn = [], []
    for one, other in zip(first, second, strict=True):
        if one.kind != other.kind or not np.array_equal(one.gold, other.gold):
            raise ValueError("correlations of different kind or rows have no paired difference")
        values.append(correlation_value(one) - correlation_value(other))
        drawn.append(np.subtract(*(_resampled(each, resamples, seed, pictures) for each in (one, other))))
    return np.array(values), np.stack(drawn)


def _resampled(correlation: Correlation, resamples: int, seed: int, pictures: Indices | None) -> Reals:
    """Correlations of draws of all rows with replacement `[resamples]`; equal seeds draw equal rows.

    With `pictures`, the picture of each row `[rows]`, pictures are drawn, each with all its rows.
    """
    finite(correlation.gold, correlation.predicted)
    generator = np.random.default_rng(seed)
    if pictures is None:
        rows = len(correlation.gold)
        drawn = (generator.integers(0, rows, size=(size, rows)) for size in chunks(resamples, rows))
        return np.concatenate([_correlations(correlation, each) for each in drawn])
    order = np.argsort(pictures, kind="stable")
    rows_of = np.split(order, np.flatnonzero(np.diff(pictures[order])) + 1)
    draws = generator.integers(0, len(rows_of), size=(resamples, len(rows_of)))
    resampled = (np.concatenate([rows_of[picture] for picture in draw]) for draw in draws)
    return np.array([_correlations(correlation, rows[None])[0] for rows in resampled])


def chunks(draws: int, rows: int) -> Iterator[int]:
    """Numbers of draws of so many rows that are held in memory at once."""
    chunk = max(1, _CELLS // rows)
    for start in range(0, draws, chunk):
        yield min(chunk, draws - start)


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
