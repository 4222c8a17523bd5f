"""Intervals hold the truth as often as they promise, in simulations with a known truth and fixed seeds."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from components.core.compute.metrics import Indices, Reals
from components.evaluation.scoring.comparisons import behind_best, reach_of_all
from components.evaluation.scoring.intervals import (
    FEWEST,
    Interval,
    estimate,
    interval_over_seeds,
    mean_interval,
    paired_interval,
)

DRAWS = 1500
"""Draws of a simulation: 95% is measured with a standard error of 0.6 points."""
LEAST, MOST = 0.93, 0.975

Draw = Callable[[np.random.Generator], Interval]


def _coverage(draw: Draw, truth: float, draws: int = DRAWS) -> float:
    """The share of intervals that hold the truth; none has a length of 0."""
    generator = np.random.default_rng(20261130)
    spans = [draw(generator) for _ in range(draws)]
    assert all(span.low < span.high and span.low <= span.value <= span.high for span in spans)
    return sum(span.low <= truth <= span.high for span in spans) / draws


def _pictures(count: int, likeness: float, unequal: bool) -> Draw:
    """Normal values of 5, or of 1 to 20, queries of a picture that correlate by `likeness`."""

    def draw(generator: np.random.Generator) -> Interval:
        sizes = generator.choice([1, 1, 2, 5, 20], count) if unequal else np.full(count, 5)
        owner = np.arange(count).repeat(sizes)
        common, own = generator.normal(size=count)[owner], generator.normal(size=len(owner))
        return mean_interval(math.sqrt(likeness) * common + math.sqrt(1 - likeness) * own, pictures=owner)

    return draw


def _strata(groups: int, size: int) -> Draw:
    group = np.arange(groups).repeat(size)
    return lambda generator: mean_interval(np.sin(group) + generator.normal(size=len(group)), strata=group)


def _two_pictures(count: int, queries: int) -> Draw:
    every = np.stack(np.triu_indices(count, 1), 1)

    def draw(generator: np.random.Generator) -> Interval:
        chosen = every[generator.choice(len(every), queries, replace=False)]
        level = generator.normal(size=count)
        return mean_interval(level[chosen].sum(axis=1) + generator.normal(size=queries), pictures=chosen)

    return draw


def _agreement(size: int) -> Draw:
    """Values like AO@10: half of them near 0."""

    def draw(generator: np.random.Generator) -> Interval:
        low, high = generator.beta(0.5, 9, size), generator.beta(2, 3, size)
        return mean_interval(np.where(generator.random(size) < 0.5, low, high))

    return draw


def _hits(generator: np.random.Generator, share: float, size: int) -> Reals:
    return (generator.random(size) < share).astype(np.float64)


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        *[(_pictures(count, likeness, unequal), 0.0)
          for count in (20, 32, 100) for likeness in (0.1, 0.8) for unequal in (False, True)],
        *[(_strata(groups, size), float(np.sin(np.arange(groups)).mean()))
          for groups, size in ((50, 2), (20, 5), (10, 10), (4, 50))],
        *[(_two_pictures(count, queries), 0.0) for count, queries in ((20, 60), (32, 64), (100, 300))],
        *[(_agreement(size), 0.5 * 0.5 / 9.5 + 0.5 * 0.4) for size in (32, 300)],
    ],
)  # fmt: skip
def test_intervals_of_means_cover_the_truth(draw: Draw, truth: float) -> None:
    assert LEAST - 0.01 <= _coverage(draw, truth) <= MOST


@pytest.mark.parametrize("size", [32, 100, 300])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
def test_intervals_of_shares_cover_the_truth(share: float, size: int) -> None:
    # Shares of few queries take few values, so their coverage jumps about 95%.
    assert 0.915 <= _coverage(lambda generator: mean_interval(_hits(generator, share, size)), share) <= 0.99


@pytest.mark.parametrize("pictures", [False, True])
@pytest.mark.parametrize(
    ("share", "differ", "gain"), [(0.9, 0.06, 0.0), (0.9, 0.11, 0.03), (0.5, 0.3, 0.1), (0.99, 0.02, 0.0)]
)
@pytest.mark.parametrize("size", [32, 300])
def test_intervals_of_differences_of_shares_cover_the_truth(
    size: int, share: float, differ: float, gain: float, pictures: bool
) -> None:
    lost, won = (differ - gain) / 2, (differ + gain) / 2
    odds = [share - lost, lost, won, 1 - share - won]

    def draw(generator: np.random.Generator) -> Interval:
        kind = generator.choice(4, size=size, p=odds)
        owner: Indices | None = np.arange(size) if pictures else None
        old, new = (np.isin(kind, hit).astype(np.float64) for hit in ((0, 1), (0, 2)))
        return paired_interval(new, old, pictures=owner)

    assert _coverage(draw, gain) >= LEAST


@pytest.mark.parametrize("left", [0.0, 1.0])
@pytest.mark.parametrize("ratio", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("seeds", [3, 5])
def test_intervals_over_seeds_cover_the_truth_where_seeds_vary_more_than_queries(
    seeds: int, ratio: float, left: float
) -> None:
    size = 100

    def draw(generator: np.random.Generator) -> Interval:
        shift = generator.normal(size=(seeds, 1)) * ratio * math.sqrt((1 + left**2) / size)
        values = generator.normal(size=size) + shift + left * generator.normal(size=(seeds, size))
        return interval_over_seeds(list(values), [np.zeros(size)] * seeds)

    assert LEAST - 0.01 <= _coverage(draw, 0.0, 800) <= MOST + 0.01


def test_one_seed_has_the_paired_interval() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 50))
    assert interval_over_seeds([first], [second]) == paired_interval(first, second)


def test_few_units_have_no_interval() -> None:
    values = np.random.default_rng(0).normal(size=2 * FEWEST)
    owner = np.arange(2 * FEWEST) // 2
    assert mean_interval(values, pictures=owner).is_known
    for few in (mean_interval(values[2:], pictures=owner[2:]), mean_interval(values[: FEWEST - 1])):
        assert (few.low, few.high, few.is_known, few.excludes_zero) == (-math.inf, math.inf, False, False)
    hits = np.ones(FEWEST - 1)
    assert not mean_interval(hits).is_known
    assert not paired_interval(hits, 0 * hits).is_known


@pytest.mark.parametrize("size", [20, 32, 1000])
def test_units_that_agree_have_an_interval_with_a_length(size: int) -> None:
    ones = np.ones(size)
    low = 1 - 1.959964**2 / (size + 1.959964**2)
    assert mean_interval(ones).low == pytest.approx(low, abs=1e-6)
    reach = t.ppf(0.975, size - 1) ** 2
    assert mean_interval(0.51 * ones).low == pytest.approx(0.51 - reach / (size + reach), abs=1e-6)
    same = paired_interval(ones, ones)
    assert same.value == 0
    assert same.low == pytest.approx(-same.high)
    assert 0 < same.high < 4 / size
    # Every query of a thousand gained 0.01: more than the 0.4% that could lose a whole point.
    assert paired_interval(0.51 * ones, 0.5 * ones).excludes_zero == (size == 1000)


def test_an_interval_of_pictures_is_wider_than_that_of_their_queries() -> None:
    values = np.random.default_rng(1).normal(size=100).repeat(5)
    alone, together = mean_interval(values), mean_interval(values, pictures=np.arange(100).repeat(5))
    assert together.half_width == pytest.approx(alone.half_width * math.sqrt(5), rel=0.05)
    assert together.value == alone.value


def test_simple_means_have_students_interval() -> None:
    values = np.random.default_rng(2).normal(size=40)
    expected = ttest_1samp(values, 0).confidence_interval()
    found = mean_interval(values)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert estimate(values).degrees == pytest.approx(39)


@pytest.mark.parametrize("encoders", [3, 6, 10])
@pytest.mark.parametrize("size", [32, 150])
def test_equal_encoders_rarely_have_an_interval_to_the_best_that_excludes_zero(encoders: int, size: int) -> None:
    generator, wrong, draws = np.random.default_rng(3), 0, 250
    for _ in range(draws):
        common = generator.normal(size=size)
        values = {str(one): common + generator.normal(size=size) for one in range(encoders)}
        wrong += any(span.excludes_zero for span in behind_best(values, 1).values())
    assert wrong / draws <= 0.05 + 0.03


def test_the_interval_to_the_best_shows_a_clear_loss_and_a_clear_lead() -> None:
    generator = np.random.default_rng(4)
    common = generator.normal(size=500)
    values = {
        name: common + shift + 0.5 * generator.normal(size=500) for name, shift in (("a", 1.0), ("b", 0), ("c", 0))
    }
    higher, lower = behind_best(values, 1), behind_best(values, -1)
    assert higher["a"].low > 0 > higher["b"].high
    assert higher["c"].high < 0
    assert lower["a"].low > 0
    assert not lower["b"].excludes_zero


@pytest.mark.parametrize("candidates", [1, 5, 20])
def test_equal_candidates_are_rarely_above_the_champion_however_many_they_are(candidates: int) -> None:
    generator, wrong, draws = np.random.default_rng(5), 0, 400
    for _ in range(draws):
        common = generator.normal(size=200)
        champion = common + generator.normal(size=200)
        found = [estimate(common + generator.normal(size=200) - champion) for _ in range(candidates)]
        reach = reach_of_all(found)
        wrong += any(one.value > reach * one.error for one in found)
    assert wrong / draws <= 0.025 + 0.02


def test_siblings_need_less_than_unrelated_candidates() -> None:
    generator = np.random.default_rng(6)
    common = generator.normal(size=300)
    siblings = [estimate(common + 0.1 * generator.normal(size=300)) for _ in range(20)]
    unrelated = [estimate(generator.normal(size=300)) for _ in range(20)]
    assert 1.9 < reach_of_all(siblings) < 2.5
    assert 2.9 < reach_of_all(unrelated) < 3.4
