"""Compares encoders on the same queries: two of them, several at once, and each with the best of the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_lowercase

import numpy as np

from components.core.compute.metrics import Indices, Reals
from components.evaluation.scoring.benchmark import Column, Correlation, Scores
from components.evaluation.scoring.correlations import chunks, correlation_difference, correlation_estimate
from components.evaluation.scoring.intervals import (
    LEVEL,
    Estimate,
    Interval,
    estimate,
    interval_over_seeds,
    paired,
    paired_estimate,
    student,
)

_DRAWS, _FEW, _ALPHA, _RESAMPLES = 4000, 100, 0.05, 1000


def difference_of(
    first: Sequence[Column],
    second: Sequence[Column],
    resamples: int,
    seed: int,
    strata: Indices | None = None,
    pictures: Indices | None = None,
    level: float = LEVEL,
) -> Interval:
    """The first encoder's metric less the second's, each trained with one or several seeds.

    `resamples` and `seed` are those of correlations; strata and pictures are as in `mean_interval`.

    Raises:
        ValueError: one has values and the other a correlation, or they differ in kind, queries or number of seeds.
    """
    correlations = [[one for one in each if isinstance(one, Correlation)] for each in (first, second)]
    if any(correlations):
        return correlation_difference(correlations[0], correlations[1], resamples, seed, pictures, level)
    values = [[one for one in each if not isinstance(one, Correlation)] for each in (first, second)]
    return interval_over_seeds(values[0], values[1], strata, pictures, level)


def estimate_of(
    first: Column, second: Column, seed: int = 0, strata: Indices | None = None, pictures: Indices | None = None
) -> Estimate:
    """The first encoder's metric less the second's, with its standard error; as `difference_of` of one seed."""
    if isinstance(first, Correlation) and isinstance(second, Correlation):
        return correlation_estimate(first, second, _RESAMPLES, seed, pictures)
    if isinstance(first, Correlation) or isinstance(second, Correlation):
        raise ValueError("a correlation and values per query have no paired difference")
    return paired_estimate(first, second, strata, pictures)


def improvement(name: str, ours: Scores, theirs: Scores, higher_is_better: bool) -> Estimate | None:
    """How much better an encoder is than another one on a metric, positive if better; None without values per query."""
    new, old = ours.column(name), theirs.column(name)
    if new is None or old is None:
        return None
    if not higher_is_better:
        new, old = old, new
    return estimate_of(new, old, 0, *ours.groups(name))


def reach_of_all(estimates: Sequence[Estimate], level: float = LEVEL, seed: int = 0) -> float:
    """How many standard errors the ends of each interval are from its middle, so that all hold at once (max-T).

    The quantile of the largest of the standardised means under normal multipliers of the units, which keeps their
    correlations: twenty siblings of one encoder need less than twenty unrelated ones. Estimates are of the same units.
    """
    degrees = min(one.degrees for one in estimates)
    moving = [one.parts / np.sqrt(np.square(one.parts).sum()) for one in estimates if one.error]
    if len(moving) <= 1 or len(moving[0]) <= _FEW:
        # Multipliers of few units have too short tails: Bonferroni's level holds.
        return student(1 - (1 - level) / max(1, len(moving)), degrees)
    # Two queries more stand at the end of shares, and of encoders that never differ.
    longest = max(map(len, moving))
    parts = np.stack([np.pad(one, (0, longest - len(one))) for one in moving], axis=1)
    generator = np.random.default_rng(seed)
    drawn = [
        np.abs(generator.standard_normal((draws, len(parts))) @ parts).max(axis=1)
        for draws in chunks(_DRAWS, len(parts))
    ]
    # Few units have Student's tails in place of the multipliers' normal ones.
    normal = max(student(level), float(np.quantile(np.concatenate(drawn), level)))
    return student(math.erf(normal / math.sqrt(2)), degrees)


@dataclass(frozen=True)
class AllPairs:
    """The differences of all pairs of encoders, in intervals that hold for all of them at once at 95%.

    Attributes:
        means: of each encoder.
        found: the first of two encoders less the second.
        reach: how many standard errors the intervals reach.
    """

    means: Mapping[str, float]
    found: Mapping[tuple[str, str], Estimate]
    reach: float

    @staticmethod
    def of(values: Mapping[str, Reals], strata: Indices | None = None, pictures: Indices | None = None) -> AllPairs:
        """Of the values per query `[queries]` of each encoder."""
        pairs = combinations(values, 2)
        found = {pair: paired_estimate(values[pair[0]], values[pair[1]], strata, pictures) for pair in pairs}
        means = {name: estimate(each, strata, pictures).value for name, each in values.items()}
        return AllPairs(means, found, reach_of_all(list(found.values())))

    def behind_best(self, sign: int) -> dict[str, Interval]:
        """Each encoder's mean less the best of the others' (Hsu 1984).

        An encoder whose interval reaches 0 could be best. `sign` is -1 where a lower value is better; differences are
        in the metric's own direction.
        """
        spans: dict[str, list[Interval]] = {name: [] for name in self.means}
        for (one, other), each in self.found.items():
            half, value = each.reaching(self.reach).half_width, sign * (self.means[one] - self.means[other])
            middle = sign * each.value
            low, high = min(middle - half, value), max(middle + half, value)
            spans[one].append(Interval(value, low, high))
            spans[other].append(Interval(-value, -high, -low))
        return {name: _signed(sign, min(of, key=lambda span: span.value), of) for name, of in spans.items()}

    @property
    def least(self) -> float:
        """The least true difference of any two that is shown with a power of 80%; endless of few units."""
        return max(each.least(self.reach) for each in self.found.values())


def _signed(sign: int, nearest: Interval, spans: Sequence[Interval]) -> Interval:
    low, high = min(span.low for span in spans), min(span.high for span in spans)
    return Interval(nearest.value, low, high) if sign > 0 else Interval(-nearest.value, -high, -low)


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
    Smyth 2010). `strata` and `pictures` are as in `mean_interval`.

    Raises:
        ValueError: the values differ in number, or queries are about two pictures, which cannot be swapped.
    """
    difference = paired(first, second)
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
    for draws in chunks(resamples, len(difference)):
        signs = np.where(generator.random((draws, len(difference))) < 0.5, -1.0, 1.0)
        beyond += int((np.abs(signs @ difference) >= bound).sum())
    return (beyond + 1) / (resamples + 1)


def significant(p: Mapping[tuple[str, str], float], level: float = _ALPHA) -> set[tuple[str, str]]:
    """The pairs that differ at a family-wise `level`, by Holm's step-down procedure (Holm 1979).

    >>> sorted(significant({("a", "b"): 0.04, ("a", "c"): 0.001, ("b", "c"): 0.02}))
    [('a', 'b'), ('a', 'c'), ('b', 'c')]
    >>> sorted(significant({("a", "b"): 0.04, ("a", "c"): 0.001, ("b", "c"): 0.03}))
    [('a', 'c')]
    """
    found = set()
    for place, pair in enumerate(sorted(p, key=lambda pair: p[pair])):
        if p[pair] > level / (len(p) - place):
            break
        found.add(pair)
    return found


def letters_of(order: Sequence[str], different: set[tuple[str, str]]) -> dict[str, str]:
    """A letter for each largest group without a different pair; `a` belongs to the first in `order`.

    >>> letters_of(["x", "y", "z"], {("x", "z")})
    {'x': 'a', 'y': 'ab', 'z': 'b'}
    """
    groups = [set(order)]
    for pair in sorted(different, key=lambda pair: [order.index(one) for one in pair]):
        split = [group - {one} for group in groups if group.issuperset(pair) for one in reversed(pair)]
        kept = [group for group in groups if not group.issuperset(pair)]
        for group in split:
            if not any(group <= other for other in kept):
                kept.append(group)
        groups = kept
    groups.sort(key=lambda group: sorted(order.index(one) for one in group))
    named = [ascii_lowercase[number] if number < 26 else f"({number})" for number in range(len(groups))]
    return {one: "".join(name for name, group in zip(named, groups, strict=True) if one in group) for one in order}
