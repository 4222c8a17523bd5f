"""Intervals of simple cases, too few units and units that agree; permutation tests agree with scipy's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.stats import t, ttest_1samp

from components.core.compute.metrics import Reals
from components.evaluation.scoring.comparisons import AllPairs, difference_of, sign_flip_p
from components.evaluation.scoring.intervals import (
    FEWEST,
    estimate,
    interval_over_seeds,
    mean_interval,
    paired_interval,
)


def test_one_seed_has_the_paired_interval_and_a_simple_mean_students() -> None:
    first, second = np.random.default_rng(0).normal(size=(2, 50))
    assert interval_over_seeds([first], [second]) == paired_interval(first, second)
    values = np.random.default_rng(2).normal(size=40)
    expected = ttest_1samp(values, 0).confidence_interval()
    found = mean_interval(values)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert estimate(values).degrees == pytest.approx(39)


def test_few_units_have_no_interval_and_that_of_pictures_is_wider_than_of_their_queries() -> None:
    values = np.random.default_rng(0).normal(size=2 * FEWEST)
    owner = np.arange(2 * FEWEST) // 2
    assert mean_interval(values, pictures=owner).is_known
    for few in (mean_interval(values[2:], pictures=owner[2:]), mean_interval(values[: FEWEST - 1])):
        assert (few.low, few.high, few.is_known, few.excludes_zero) == (-math.inf, math.inf, False, False)
    hits = np.ones(FEWEST - 1)
    assert not mean_interval(hits).is_known
    assert not paired_interval(hits, 0 * hits).is_known
    values = np.random.default_rng(1).normal(size=100).repeat(5)
    alone, together = mean_interval(values), mean_interval(values, pictures=np.arange(100).repeat(5))
    assert together.half_width == pytest.approx(alone.half_width * math.sqrt(5), rel=0.05)
    assert together.value == alone.value


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


def test_the_interval_to_the_best_shows_a_clear_loss_and_a_clear_lead() -> None:
    generator = np.random.default_rng(4)
    common = generator.normal(size=500)
    values = {
        name: common + shift + 0.5 * generator.normal(size=500) for name, shift in (("a", 1.0), ("b", 0), ("c", 0))
    }
    higher, lower = (AllPairs.of(values).behind_best(sign) for sign in (1, -1))
    assert higher["a"].low > 0 > higher["b"].high
    assert higher["c"].high < 0
    assert lower["a"].low > 0
    assert not lower["b"].excludes_zero


def test_values_are_compared_by_their_difference_per_query() -> None:
    generator = np.random.default_rng(0)
    first, second, strata = generator.random(40), generator.random(40), generator.integers(0, 3, 40)
    assert difference_of([first], [second], 1, 0, strata) == paired_interval(first, second, strata)
    seeds = [first, second], [second, second]
    assert difference_of(*seeds, 1, 0, strata) == interval_over_seeds(*seeds, strata)
    with pytest.raises(ValueError, match="same queries"):
        difference_of([first], [second[1:]], 1, 0)
    with pytest.raises(ValueError, match="zip"):
        difference_of([first], [second, second], 1, 0)


def _scipy_p(difference: Reals, weights: Reals) -> float:
    """Exact for few queries: scipy then goes through all sign flips."""
    result = stats.permutation_test(
        (difference * weights,),
        lambda values, axis: np.abs(values.sum(axis=axis)),
        permutation_type="samples",
        alternative="greater",
        n_resamples=2**12,
    )
    return float(result.pvalue)


@pytest.mark.parametrize("kind", ["continuous", "hits", "equal"])
def test_sign_flips_agree_with_all_permutations(kind: str) -> None:
    first, second = np.random.default_rng(4).random((2, 11)) + np.array([[0.2], [0]])
    if kind == "hits":
        first, second = (first > 0.5).astype(float), (second > 0.5).astype(float)
    if kind == "equal":
        second = first
    strata = np.array([0] * 3 + [1] * 8)
    for groups, weights in ((None, np.ones(11)), (strata, np.where(strata == 0, 1 / 3, 1 / 8))):
        expected = _scipy_p(first - second, weights)
        assert sign_flip_p(first, second, 20_000, 0, groups) == pytest.approx(expected, abs=0.015)


def test_p_is_uniform_without_a_difference_and_never_zero() -> None:
    generator = np.random.default_rng(0)
    found = [sign_flip_p(*generator.normal(size=(2, 40)), 200, seed) for seed in range(200)]
    assert 0.01 <= np.mean(np.array(found) <= 0.05) <= 0.1
    first = generator.random(100)
    assert sign_flip_p(first + 1, first, 99, seed=0) == pytest.approx(0.01)


def test_signs_of_a_picture_are_flipped_together_so_that_p_is_below_a_level_as_often_as_the_level() -> None:
    generator = np.random.default_rng(4)
    first, second = generator.random((2, 33))
    pictures = np.array([7, 3, 5, 1, 0, 2, 4, 6, 8, 9, 10]).repeat(3)
    expected = _scipy_p((first - second + 0.05).reshape(11, 3).sum(axis=1), np.ones(11))
    assert sign_flip_p(first + 0.05, second, 20_000, 0, pictures=pictures) == pytest.approx(expected, abs=0.015)
    with pytest.raises(ValueError, match="two pictures"):
        sign_flip_p(first, second, 10, 0, pictures=np.zeros((33, 2), int))
    generator, pictures = np.random.default_rng(0), np.arange(40).repeat(5)
    found = []
    for seed in range(300):
        second = generator.normal(size=40).repeat(5) + 0.5 * generator.normal(size=200)
        found.append([sign_flip_p(np.zeros(200), second, 200, seed, pictures=one) for one in (pictures, None)])
    by_picture, by_query = np.mean(np.array(found) <= 0.05, axis=0)
    assert 0.02 <= by_picture <= 0.09
    assert by_query > 0.2
