"""Correlations are scipy's, and their intervals those of resampled rows or pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from components.core.compute.metrics import Reals
from components.evaluation.scoring import correlations
from components.evaluation.scoring.benchmark import Correlation
from components.evaluation.scoring.comparisons import sign_flip_p
from components.evaluation.scoring.correlations import correlation_difference, correlation_interval, correlation_value
from components.evaluation.scoring.intervals import Interval


def _scipy_bounds(columns: tuple[Reals, ...], statistic: Callable[..., Any], resamples: int) -> Any:
    found = stats.bootstrap(
        columns, statistic, paired=True, n_resamples=resamples, method="percentile", rng=np.random.default_rng(5)
    )
    return pytest.approx(tuple(found.confidence_interval), abs=0.01)


def test_a_seed_has_one_result_whatever_the_size_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    (values, other), (gold, similar) = np.random.default_rng(0).random((2, 100)), _columns(100)

    def drawn(seed: int) -> list[Any]:
        correlation = correlation_interval(Correlation("spearman", gold, similar), 50, seed)
        return [correlation, sign_flip_p(values, other, 500, seed)]

    whole = drawn(7)
    assert all(one != other for one, other in zip(whole, drawn(8), strict=True))
    monkeypatch.setattr(correlations, "_CELLS", 300)
    assert drawn(7) == whole


def _columns(rows: int, noise: float = 1.0, seed: int = 0) -> tuple[Reals, Reals]:
    """Scores with many ties, and similarities that follow them; the same rows for every noise."""
    generator = np.random.default_rng(seed)
    gold = generator.integers(0, 26, rows) / 5
    return gold, gold + noise * generator.normal(size=rows)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3)), min_size=2, max_size=30))
def test_correlations_are_those_of_scipy_with_ties(rows: list[tuple[int, int]]) -> None:
    gold, predicted = np.array(rows, dtype=np.float64).T
    constant = np.ptp(gold) == 0 or np.ptp(predicted) == 0
    expected = (0.0, 0.0) if constant else (stats.spearmanr(gold, predicted)[0], stats.pearsonr(gold, predicted)[0])
    found = [correlation_value(Correlation(kind, gold, predicted)) for kind in ("spearman", "pearson")]
    assert found == pytest.approx(expected, abs=1e-12)


def test_constant_columns_are_zero_and_columns_that_do_not_pair_up_refused() -> None:
    for kind in ("spearman", "pearson", "tau_c"):
        constant = Correlation(kind, np.arange(20.0), np.full(20, 0.1))
        assert correlation_interval(constant, 50, seed=0) == Interval(0.0, 0.0, 0.0), kind
    gold, predicted = _columns(20)
    first = Correlation("spearman", gold, predicted)
    for other in (Correlation("pearson", gold, predicted), Correlation("spearman", gold[::-1], predicted)):
        with pytest.raises(ValueError, match="no paired difference"):
            correlation_difference([first], [other], 10, 0)
    with pytest.raises(ValueError, match="same queries"):
        sign_flip_p(gold, predicted[1:], 10, seed=0)


def test_intervals_agree_with_scipy_and_each_resample_has_its_own_ranks() -> None:
    gold, predicted = _columns(150)
    found = correlation_interval(Correlation("spearman", gold, predicted), 2000, seed=0)
    assert found.value == pytest.approx(stats.spearmanr(gold, predicted)[0])
    assert (found.low, found.high) == _scipy_bounds((gold, predicted), lambda *rows: stats.spearmanr(*rows)[0], 2000)
    gold, predicted = _columns(30)
    for kind, expected in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        found = correlations._resampled(Correlation(kind, gold, predicted), 20, 3, None)
        drawn = np.random.default_rng(3).integers(0, 30, size=(20, 30))
        np.testing.assert_allclose(found, [expected(gold[rows], predicted[rows])[0] for rows in drawn], atol=1e-12)


def test_kendalls_tau_of_resampled_pictures() -> None:
    """Rows of a picture are drawn together: copies of each row do not change the interval."""
    gold, predicted = _columns(60)
    gold = np.round(gold)
    found = correlation_interval(Correlation("tau_c", gold, predicted), 300, 0, pictures=np.arange(60))
    assert found.value == pytest.approx(stats.kendalltau(gold, predicted, variant="c").statistic)
    assert found.low < found.value < found.high
    thrice, pictures = Correlation("tau_c", gold.repeat(3), predicted.repeat(3)), np.arange(60).repeat(3)
    copied = correlation_interval(thrice, 300, 0, pictures=pictures)
    assert (copied.low, copied.high) == pytest.approx((found.low, found.high))
    assert correlation_interval(thrice, 300, 0).half_width < 0.7 * found.half_width
    assert correlation_difference([thrice], [thrice], 20, 0, pictures=pictures) == Interval(0.0, 0.0, 0.0)


def test_differences_of_correlations_share_resamples_also_over_seeds() -> None:
    gold, good = _columns(200, noise=1.0)
    close = good + 0.05 * np.random.default_rng(9).normal(size=200)
    first, second = Correlation("spearman", gold, good), Correlation("spearman", gold, close)
    assert correlation_difference([first], [first], 200, 0) == Interval(0.0, 0.0, 0.0)
    found = correlation_difference([first], [second], 400, 0)
    assert found.value == pytest.approx(correlation_value(first) - correlation_value(second))
    # Two encoders that nearly agree: unpaired resamples would be as uncertain as each encoder by itself.
    assert found.half_width < correlation_interval(first, 400, seed=0).half_width / 4
    worse = Correlation("spearman", gold, _columns(200, noise=6.0)[1])
    assert correlation_difference([first], [worse], 400, 0).low > 0
    assert correlation_difference([worse], [first], 400, 0).high < 0
    gold = _columns(200)[0]
    generator = np.random.default_rng(3)
    none = [Correlation("spearman", gold, np.zeros(200))] * 3

    def seeds(*noise: float) -> list[Correlation]:
        return [Correlation("spearman", gold, gold + one * generator.normal(size=200)) for one in noise]

    alike, apart = (correlation_difference(seeds(*noise), none, 300, 0) for noise in ((1, 1, 1), (0.3, 1, 4)))
    assert 0 < alike.half_width < 0.1 < apart.half_width
    assert alike.low < alike.value < alike.high
