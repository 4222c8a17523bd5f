from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from components.evaluation import bootstrap
from components.evaluation.bootstrap import Interval, interval, resampled_means


def test_same_seed_same_interval() -> None:
    values = np.random.default_rng(0).random(50)
    assert interval(values, 200, seed=1) == interval(values, 200, seed=1)
    assert interval(values, 200, seed=1) != interval(values, 200, seed=2)


def test_a_constant_has_no_width() -> None:
    found = interval(np.full(20, 0.3), 100, seed=0)
    assert (found.value, found.low, found.high) == pytest.approx((0.3, 0.3, 0.3))


def test_agrees_with_scipy() -> None:
    values = np.random.default_rng(2).random(200)
    found = interval(values, 4000, seed=0)
    expected = stats.bootstrap(
        (values,), np.mean, n_resamples=4000, method="percentile", rng=np.random.default_rng(5)
    ).confidence_interval
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.004)


def test_covers_the_true_mean_about_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    found = [interval((generator.random(80) < 0.4).astype(float), 200, seed) for seed in range(200)]
    covered = np.mean([entry.low <= 0.4 <= entry.high for entry in found])
    assert 0.88 <= covered <= 0.99


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random(30)
    whole = resampled_means(values, 50, np.random.default_rng(7))
    monkeypatch.setattr(bootstrap, "_CELLS", 100)
    np.testing.assert_array_equal(resampled_means(values, 50, np.random.default_rng(7)), whole)


def test_strata_weigh_groups_alike() -> None:
    values = np.array([1.0] * 9 + [0.0])
    strata = np.array([0] * 9 + [1])
    found = interval(values, 100, seed=0, strata=strata)
    # Each group is constant, so resampling within groups never moves the mean of 1 and 0.
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert interval(values, 100, seed=0).value == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False), (0, 1, False)]
)
def test_excludes_zero(low: float, high: float, expected: bool) -> None:
    assert Interval(0.0, low, high).excludes_zero is expected
