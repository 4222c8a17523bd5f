"""95% intervals of means over queries, of shares, and of paired differences of encoders, over queries and seeds.

The units are queries, or pictures where a picture has several queries: its queries succeed and fail together. Closed
forms replace resamples: they cover the truth as often as they promise from 20 units on, and cost nothing. Their
measured coverage is in docs/statistics.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from components.core.compute.metrics import Indices, Reals, finite

LEVEL = 0.95
FEWEST = 20
"""Units below which no interval is stated."""
_ROUNDING, POWER_ERRORS = 1e-12, 0.8416212335729143
"""Standard errors behind which four of five values are: a power of 80%."""


@dataclass(frozen=True)
class Interval:
    """A value and its 95% interval, which is endless where there are too few units to state one."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval's length."""
        return (self.high - self.low) / 2

    @property
    def is_known(self) -> bool:
        """Whether there were units enough for an interval."""
        return math.isfinite(self.half_width)

    @property
    def least(self) -> float:
        """Of a difference: the least true one that an interval of this length shows with a power of 80%."""
        return self.half_width * (1 + POWER_ERRORS / student(LEVEL))

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval is on one side of 0."""
        return self.low > 0 or self.high < 0

    def verdict(self, higher_is_better: bool) -> str:
        """Of a difference: `better` or `worse` if the interval excludes 0, otherwise empty."""
        if not self.excludes_zero:
            return ""
        return "better" if (self.value > 0) == higher_is_better else "worse"


@dataclass(frozen=True)
class Estimate:
    """A mean and what its interval is made of.

    Attributes:
        value: the mean, or the mean over groups of their means.
        parts: each unit's part of the error `[units]`; the variance is the sum of their squares.
        degrees: Student's degrees of freedom of that sum (Satterthwaite 1946).
    """

    value: float
    parts: Reals
    degrees: float
    enlarged: float = 1.0
    """Ratio of the standard error to the root of the squared parts."""
    added: int = 0
    """Units at the end that no test set has; see `paired_estimate`."""

    @property
    def units(self) -> int:
        """Number of queries, or of pictures."""
        return len(self.parts) - self.added

    @property
    def error(self) -> float:
        """Standard error, robust to pictures with several queries; 0 where only rounding varies."""
        error = self.enlarged * float(np.sqrt(np.square(self.parts).sum()))
        return error if error > _ROUNDING * max(1.0, abs(self.value)) else 0.0

    def interval(self, level: float = LEVEL) -> Interval:
        """Student's interval. Where all units agree, one of another value could be as frequent as Wilson's bound."""
        return self.reaching(student(level, self.degrees))

    def reaching(self, errors: float) -> Interval:
        """The interval of so many standard errors to both sides."""
        if self.units < FEWEST:
            return Interval(self.value, -math.inf, math.inf)
        reach = errors * self.error or errors**2 / (self.units + errors**2)
        return Interval(self.value, self.value - reach, self.value + reach)

    @property
    def p(self) -> float:
        """Two-sided p-value of a truth of 0; 1 where there are too few units."""
        from scipy.special import stdtr

        if self.units < FEWEST or not self.error:
            return 1.0
        return float(2 * stdtr(self.degrees, -abs(self.value) / self.error))

    def least(self, errors: float | None = None) -> float:
        """Of a difference: the least true one that the interval of so many standard errors shows, with a power of 80%.

        Args:
            errors: those of 95% by default.
        """
        return self.reaching(self._errors(errors) + POWER_ERRORS).half_width

    def units_for(self, distance: float, errors: float | None = None) -> int:
        """How many units end that interval before `distance`, with a power of 80%; `errors` as in `least`.

        Added units are two in any number, so their part of the error is left out.
        """
        error = self.enlarged * float(np.sqrt(np.square(self.parts[: self.units]).sum())) * len(self.parts) / self.units
        return math.ceil(self.units * ((self._errors(errors) + POWER_ERRORS) * error / distance) ** 2)

    def _errors(self, errors: float | None) -> float:
        return student(LEVEL, self.degrees) if errors is None else errors


def detectable(units: int, spread: float) -> float:
    """The least gain that so many queries or pictures show with a power of 80%.

    Args:
        spread: standard deviation of the difference of two encoders per query.
    """
    return (student(LEVEL) + POWER_ERRORS) * spread / math.sqrt(units)


def student(level: float, degrees: float = math.inf) -> float:
    """How many standard errors the ends of an interval are from its middle."""
    from scipy.special import ndtri, stdtrit

    probability = (1 + level) / 2
    return float(stdtrit(degrees, probability) if math.isfinite(degrees) else ndtri(probability))


def mean_interval(values: Reals, strata: Indices | None = None, pictures: Indices | None = None) -> Interval:
    """The mean of `values` `[queries]` with its interval.

    The interval of a share, where all values are 0 or 1, is Wilson's (1927); with pictures, that of as many
    independent queries as have the same standard error.

    Args:
        strata: group of each query `[queries]`; then the value is the mean over groups of each group's mean.
        pictures: number of each query's picture `[queries]`, or of its two `[queries, 2]`; None if no picture has two
            queries.
    """
    found = estimate(values, strata, pictures)
    is_share = strata is None and bool(np.isin(values, (0, 1)).all())
    if not is_share or found.units < FEWEST:
        return found.interval()
    if pictures is None or not found.error:
        return share_interval(found.value, found.units)
    size = found.value * (1 - found.value) / found.error**2
    return share_interval(found.value, size, student(LEVEL, found.degrees))


def share_interval(share: float, size: float, errors: float | None = None) -> Interval:
    """Wilson's interval of a share of `size` independent cases; `errors` are those of 95% by default."""
    z = student(LEVEL) if errors is None else errors
    middle = (share + z**2 / (2 * size)) / (1 + z**2 / size)
    reach = z * math.sqrt(share * (1 - share) / size + z**2 / (4 * size**2)) / (1 + z**2 / size)
    return Interval(share, min(share, middle - reach), max(share, middle + reach))


def share_sequence(hits: Reals, owners: Indices | None = None) -> Interval:
    """The share of `hits`, 0 or 1 `[cases]`, with an interval that may be looked at after each case.

    In at most 2.5% of series an end is ever beyond the truth (Ville 1939). There the likelihood of the shares beyond
    it, mixed by a Beta(1/2, 1/2), is 40 times its own (Robbins 1970). Below twenty cases the interval is [0, 1].

    Args:
        owners: number of the person that a case is of `[cases]`; then the interval is that of as many independent
            cases as have the same Student's interval.
    """
    share, size = float(hits.mean()), float(len(hits))
    if size < FEWEST:
        return Interval(share, 0.0, 1.0)
    found = estimate(hits, None, owners)
    if owners is not None and found.error:
        reach = found.error * student(LEVEL, found.degrees) / student(LEVEL)
        size = min(size, share * (1 - share) / reach**2)
    return Interval(share, _sequence_low(share * size, size), 1 - _sequence_low((1 - share) * size, size))


def _sequence_low(hits: float, size: float) -> float:
    from scipy.optimize import brentq
    from scipy.special import betaincc, betaln

    def evidence(bound: float) -> float:
        """Logarithm of the mixture of the likelihoods of shares above the bound, by that of the bound."""
        one, other = hits + 0.5, size - hits + 0.5
        mixed = betaln(one, other) + np.log(betaincc(one, other, bound))
        mixed -= betaln(0.5, 0.5) + np.log(betaincc(0.5, 0.5, bound))
        return float(mixed - hits * math.log(bound) - (size - hits) * math.log1p(-bound) - math.log(2 / (1 - LEVEL)))

    least, share = 1e-9, min(hits / size, 1 - 1e-9)
    return float(brentq(evidence, least, share)) if share > least and evidence(least) > 0 else 0.0


def difference_of_shares(first: float, size: int, second: float, other_size: int) -> Interval:
    """A share less another one of other cases, with the interval of Newcombe (1998, method 10)."""
    one, other = share_interval(first, size), share_interval(second, other_size)
    value = first - second
    low = value - math.hypot(one.value - one.low, other.high - other.value)
    return Interval(value, low, value + math.hypot(one.high - one.value, other.value - other.low))


def paired_interval(
    first: Reals, second: Reals, strata: Indices | None = None, pictures: Indices | None = None, level: float = LEVEL
) -> Interval:
    """The first encoder's mean less the second's, of the same queries; as `paired_estimate`."""
    value = estimate(paired(first, second), strata, pictures).value
    span = paired_estimate(first, second, strata, pictures).interval(level)
    # No difference of two shares is beyond 1.
    most = 1.0 if span.is_known and np.isin((first, second), (0, 1)).all() else math.inf
    return Interval(value, max(-most, min(span.low, value)), min(most, max(span.high, value)))


def paired_estimate(
    first: Reals, second: Reals, strata: Indices | None = None, pictures: Indices | None = None
) -> Estimate:
    """The first encoder's mean less the second's, of the same queries; parameters as in `mean_interval`.

    For shares, where both have hits or misses, a query is added that only the first encoder hits, and one that only
    the second hits (Bonett and Price 2012): the interval has a length where the encoders never differ.

    Raises:
        ValueError: the values differ in number.
    """
    difference = paired(first, second)
    found = estimate(difference, strata, pictures)
    if strata is not None or found.units < FEWEST or not np.isin(difference, (-1, 0, 1)).all():
        return found
    if pictures is not None:
        added = pictures.max() + 1 + np.arange(2 * pictures[:1].size).reshape(2, *pictures.shape[1:])
        pictures = np.concatenate([pictures, added])
    return replace(estimate(np.concatenate([difference, [1.0, -1.0]]), None, pictures), added=2)


def interval_over_seeds(
    first: Sequence[Reals],
    second: Sequence[Reals],
    strata: Indices | None = None,
    pictures: Indices | None = None,
    level: float = LEVEL,
) -> Interval:
    """The mean difference of encoders that were trained with several seeds each; both seeds and queries vary.

    Seeds and queries are crossed random factors. The variance is that of the seeds' means, plus that of the queries'
    means, less that of single queries of single seeds, which both contain; its degrees of freedom are Satterthwaite's.
    The interval is never shorter than Student's of the seeds' means alone: with three seeds Satterthwaite's covers 92%.
    One seed has the interval of `paired_interval`.

    Raises:
        ValueError: the numbers of seeds or values differ.
    """
    of_seeds = np.stack([paired(one, other) for one, other in zip(first, second, strict=True)])
    if len(of_seeds) == 1:
        return paired_interval(first[0], second[0], strata, pictures, level)
    together = estimate(of_seeds.mean(axis=0), strata, pictures)
    values = np.array([estimate(row, strata, pictures).value for row in of_seeds])
    left = sum(estimate(row, strata, pictures).error ** 2 for row in of_seeds - of_seeds.mean(axis=0))
    return over_seeds(values, together, left, level)


def over_seeds(values: Reals, together: Estimate, left: float, level: float = LEVEL) -> Interval:
    """The interval of the mean of several seeds; see `interval_over_seeds`.

    Args:
        values: of each seed `[seeds]`.
        together: their mean, with its error over queries.
        left: sum over the seeds of the squared errors over queries of what differs from that mean.
    """
    seeds = len(values)
    alone = float(values.var(ddof=1)) / seeds
    # Deviations from the mean of the seeds are smaller than those from the truth, hence seeds - 1.
    cells = left / (seeds * (seeds - 1))
    variance = max(alone + together.error**2 - cells, alone, together.error**2)
    squares = (alone**2 + cells**2 / together.degrees) / (seeds - 1) + together.error**4 / together.degrees
    degrees = variance**2 / squares if squares else seeds - 1.0
    reach = max(student(level, degrees) * math.sqrt(variance), student(level, seeds - 1.0) * math.sqrt(alone))
    return Interval(together.value, together.value - reach, together.value + reach)


def estimate(values: Reals, strata: Indices | None = None, pictures: Indices | None = None) -> Estimate:
    """The mean of `values` `[queries]` and its standard error; parameters as in `mean_interval`.

    In each group the deviations of a picture's queries from the group's mean are divided by the root of the share
    that the picture leaves to the others, which is CR2 of a mean (Bell and McCaffrey 2002). Groups of one unit share
    their spread.
    """
    finite(values)
    groups = np.zeros(len(values), dtype=np.int64) if strata is None else _numbered(strata)
    sizes = np.bincount(groups)
    means = np.bincount(groups, values) / sizes
    weights = 1 / (sizes * len(sizes))
    value = float(means.mean())
    if pictures is not None and pictures.ndim == 2:
        return _of_two_pictures(value, (weights[groups] * (values - means[groups])), _numbered(pictures))
    owners = np.arange(len(values)) if pictures is None else _numbered(pictures)
    cells = np.unique(groups * (owners.max() + 1) + owners, return_inverse=True)[1]
    counts, first = np.bincount(cells), np.unique(cells, return_index=True)[1]
    group, owner = groups[first], owners[first]
    single = np.bincount(group)[group] == 1
    if single.any():
        means[group[single]] = means[group[single]].mean() if single.sum() > 1 else value
    left = np.where(single, 1 - 1 / max(2, single.sum()), 1 - counts / sizes[group])
    sums = np.bincount(cells, weights[groups] * (values - means[groups])) / np.sqrt(left)
    parts = np.bincount(owner, sums).astype(np.float64)
    return Estimate(value, parts, _degrees(counts, group, sizes, weights, left))


def _degrees(counts: Indices, group: Indices, sizes: Indices, weights: Reals, left: Reals) -> float:
    """Degrees of freedom of the squared sums, those of independent queries that vary alike."""
    power = counts / left
    squares = np.bincount(group, power**2) - 2 * np.bincount(group, power**2 * counts) / sizes
    squares += np.square(np.bincount(group, power * counts)) / sizes**2
    squared = float((weights**4 * squares).sum())
    trace = float((weights**2 * np.bincount(group, power * (1 - counts / sizes[group]))).sum())
    return max(1.0, trace**2 / squared) if squared > 0 else max(1.0, len(counts) - 1.0)


def _of_two_pictures(value: float, influence: Reals, ends: Indices) -> Estimate:
    """Of queries about two pictures each: dyadic-robust (Aronow, Samii and Assenova 2015, arXiv 1312.3398)."""
    units = int(ends.max()) + 1
    pairs = np.unique(np.sort(ends, axis=1), axis=0, return_inverse=True)[1].ravel()
    of_pictures = np.sum([np.bincount(side, influence, units) for side in ends.T], axis=0)
    # Queries about the same two pictures are in the sums of both.
    squares = np.square(of_pictures).sum()
    robust = squares - np.square(np.bincount(pairs, influence)).sum()
    # Few pictures: a residual is what 3 of them leave.
    variance = max(robust, np.square(influence).sum()) * units / max(1, units - 3)
    enlarged = math.sqrt(variance / squares) if squares else 1.0
    return Estimate(value, of_pictures, max(1.0, units / 2 - 1), enlarged)


def _numbered(names: Indices) -> npt.NDArray[np.int64]:
    return np.unique(names, return_inverse=True)[1].reshape(names.shape).astype(np.int64)


def paired(first: Reals, second: Reals) -> Reals:
    if first.shape != second.shape:
        raise ValueError("only values of the same queries have a paired difference")
    finite(first, second)
    return first - second
