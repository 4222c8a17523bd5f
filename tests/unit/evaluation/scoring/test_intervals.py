"""Intervals of simple cases, of too few units and of units that agree; tests/unit/statistics has their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t, ttest_1samp

from components.evaluation.scoring.comparisons import AllPairs
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
