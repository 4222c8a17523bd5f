from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from components.core.compute.metrics import Indices, Reals
from components.evaluation.scoring import bootstrap
from components.evaluation.scoring.benchmark import Correlation, Scores
from components.evaluation.scoring.bootstrap import (
    Interval,
    correlation_interval,
    correlation_value,
    interval,
    paired_difference,
    resampled_correlations,
    sign_flip_p,
)


def _scipy_bounds(columns: tuple[Reals, ...], statistic: Callable[..., Any], resamples: int) -> Any:
    found = stats.bootstrap(
        columns, statistic, paired=True, n_resamples=resamples, method="percentile", rng=np.random.default_rng(5)
    )
    return pytest.approx(tuple(found.confidence_interval), abs=0.01)


def test_intervals_of_means_agree_with_scipy() -> None:
    values = np.random.default_rng(2).random(200)
    found = interval(values, 4000, seed=0)
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == _scipy_bounds((values,), np.mean, 4000)


def test_a_seed_has_one_result_whatever_the_size_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    (values, other), (gold, similar) = np.random.default_rng(0).random((2, 100)), _columns(100)

    def drawn(seed: int) -> list[Any]:
        correlation = correlation_interval(Correlation("spearman", gold, similar), 50, seed)
        return [interval(values, 50, seed), correlation, sign_flip_p(values, other, 500, seed)]

    whole = drawn(7)
    assert all(one != other for one, other in zip(whole, drawn(8), strict=True))
    monkeypatch.setattr(bootstrap, "_CELLS", 300)
    assert drawn(7) == whole


def test_strata_weigh_groups_alike() -> None:
    values = np.array([1.0] * 9 + [0.0])
    strata = np.array([0] * 9 + [1])
    found = interval(values, 100, seed=0, strata=strata)
    # Each group is constant, so resampling within groups never moves the mean of 1 and 0.
    assert (found.value, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert interval(values, 100, seed=0).value == pytest.approx(0.9)


def test_groups_of_one_query_are_resampled_among_each_other() -> None:
    values = np.array([0.0, 1.0, 0.0, 1.0, 1.0])
    assert interval(values, 400, seed=0, strata=np.arange(5)) == interval(values, 400, seed=0)
    # Half of the mean of groups is the constant group's.
    mixed = interval(np.append(values, [1.0] * 5), 4000, seed=0, strata=np.array([0, 1, 2, 3, 4, *[5] * 5]))
    assert mixed.value == pytest.approx((values.sum() + 1) / 6)
    assert mixed.half_width == pytest.approx(interval(values, 4000, seed=0).half_width * 5 / 6, abs=0.02)


def test_one_query_for_each_picture_is_resampled_as_before() -> None:
    values = np.random.default_rng(3).random(60)
    assert Scores({"x/y": values}, pictures={"x/y": np.arange(60)[::-1]}).pictures == {}
    assert Scores({"x/y": values}, pictures={"x/y": np.arange(120).reshape(60, 2)}).pictures == {}
    means = values[np.random.default_rng(5).integers(0, 60, size=(300, 60))].mean(axis=1)
    assert interval(values, 300, seed=5) == Interval(values.mean(), *np.quantile(means, [0.025, 0.975]))


def test_pictures_are_resampled_as_scipy_resamples_them() -> None:
    generator = np.random.default_rng(1)
    sizes = generator.integers(1, 8, 60)
    values = (generator.random(sizes.sum()) + generator.random(60).repeat(sizes)) / 2
    pictures = generator.permutation(60).repeat(sizes)
    sums = np.bincount(np.arange(60).repeat(sizes), values)
    found = interval(values, 4000, seed=0, pictures=pictures)
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == _scipy_bounds(
        (sums, sizes), lambda total, count, axis: total.sum(axis=axis) / count.sum(axis=axis), 4000
    )
    assert paired_difference(values, 0 * values, 4000, 0, pictures=pictures) == found


def _captions(generator: np.random.Generator, pictures: int = 80, captions: int = 5) -> tuple[Reals, Indices]:
    """Hits of captions, some pictures being found by nearly all of theirs and others by nearly none; half of all."""
    easy = generator.beta(0.5, 0.5, size=pictures).repeat(captions)
    return (generator.random(len(easy)) < easy).astype(float), np.arange(pictures).repeat(captions)


def _sums(pairs: Indices, generator: np.random.Generator) -> tuple[Reals, Indices]:
    """Values of queries about two pictures each, around zero."""
    level = generator.normal(size=pairs.max() + 1)
    return level[pairs].sum(axis=1) + generator.normal(size=len(pairs)), pairs


@pytest.mark.parametrize(
    ("draw", "truth", "by_picture", "by_query"),
    [
        pytest.param(partial(_captions, captions=1), 0.5, (0.91, 0.98), (0.91, 0.98), id="one caption of a picture"),
        pytest.param(_captions, 0.5, (0.91, 0.98), (0, 0.8), id="five captions of a picture"),
        pytest.param(partial(_sums, np.stack(np.triu_indices(12, k=1), axis=1)), 0, (0.82, 0.98), (0, 0.65),
                     id="all pairs of 12 pictures"),
        pytest.param(partial(_sums, np.arange(400).reshape(200, 2)), 0, (0.91, 0.98), (0.91, 0.98),
                     id="pairs that share no picture"),
    ],
)  # fmt: skip
def test_intervals_cover_the_truth(
    draw: Callable[..., tuple[Reals, Indices]], truth: float, by_picture: tuple[float, ...], by_query: tuple[float, ...]
) -> None:
    generator, covered = np.random.default_rng(0), np.zeros(2)
    for seed in range(300):
        values, pictures = draw(generator)
        found = [interval(values, 200, seed, pictures=one) for one in (pictures, None)]
        covered += [entry.low <= truth <= entry.high for entry in found]
    assert by_picture[0] <= covered[0] / 300 <= by_picture[1]
    assert by_query[0] <= covered[1] / 300 <= by_query[1]


def test_a_mean_of_groups_resamples_pictures_that_are_in_several_groups() -> None:
    generator = np.random.default_rng(2)
    values, pictures = _captions(generator, 30, 4)
    groups = generator.integers(0, 3, len(values))
    drawn = []
    for _ in range(3000):
        rows = np.concatenate([np.flatnonzero(pictures == one) for one in generator.integers(0, 30, 30)])
        drawn.append(np.mean([values[rows][groups[rows] == group].mean() for group in range(3)]))
    found = interval(values, 3000, 0, groups, pictures)
    assert found.value == pytest.approx(np.mean([values[groups == group].mean() for group in range(3)]))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.025)


def test_a_mean_of_groups_draws_pictures_within_groups_that_share_none() -> None:
    values = np.array([1.0] * 8 + [0.0, 0.0, 0.5, 0.5])
    pictures, groups = np.arange(6).repeat(2), np.array([0] * 8 + [1] * 4)
    found = interval(values, 4000, 0, groups, pictures)
    # The first group is constant; the second draws two of two pictures: 0, 1/4 or 1/2 in shares 1/4, 1/2 and 1/4.
    assert (found.value, found.low, found.high) == pytest.approx((0.625, 0.5, 0.75))


def test_an_interval_excludes_zero_if_both_bounds_are_on_one_side() -> None:
    for low, high, expected in ((0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False), (0, 1, False)):
        assert Interval(0.0, low, high).excludes_zero is expected, (low, high)


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


def test_the_correlation_with_a_constant_column_is_zero() -> None:
    for kind in ("spearman", "pearson", "tau_c"):
        constant = Correlation(kind, np.arange(10.0), np.full(10, 0.1))
        assert correlation_interval(constant, 50, seed=0) == Interval(0.0, 0.0, 0.0), kind


def test_each_resample_has_its_own_ranks() -> None:
    gold, predicted = _columns(30)
    for kind, expected in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        found = resampled_correlations(Correlation(kind, gold, predicted), 20, np.random.default_rng(3))
        drawn = np.random.default_rng(3).integers(0, 30, size=(20, 30))
        np.testing.assert_allclose(found, [expected(gold[rows], predicted[rows])[0] for rows in drawn], atol=1e-12)


def test_intervals_of_correlations_agree_with_scipy() -> None:
    gold, predicted = _columns(150)
    found = correlation_interval(Correlation("spearman", gold, predicted), 2000, seed=0)
    assert found.value == pytest.approx(stats.spearmanr(gold, predicted)[0])
    assert (found.low, found.high) == _scipy_bounds((gold, predicted), lambda *rows: stats.spearmanr(*rows)[0], 2000)


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
    assert paired_difference(thrice, thrice, 20, 0, pictures=pictures) == Interval(0.0, 0.0, 0.0)


def test_which_picture_of_a_pair_is_named_first_does_not_matter() -> None:
    generator = np.random.default_rng(0)
    pairs, values = np.stack(np.triu_indices(7, k=1), axis=1), generator.random(21)
    turned = np.where(generator.random((21, 1)) < 0.5, pairs, pairs[:, ::-1])
    assert interval(values, 200, 0, pictures=turned) == pytest.approx(interval(values, 200, 0, pictures=pairs))


def test_paired_difference_of_values_is_the_interval_of_their_difference() -> None:
    generator = np.random.default_rng(0)
    first, second, strata = generator.random(40), generator.random(40), generator.integers(0, 3, 40)
    assert paired_difference(first, second, 100, 1, strata) == interval(first - second, 100, 1, strata)


def test_paired_difference_of_correlations_shares_resamples() -> None:
    gold, good = _columns(200, noise=1.0)
    close = good + 0.05 * np.random.default_rng(9).normal(size=200)
    first, second = Correlation("spearman", gold, good), Correlation("spearman", gold, close)
    assert paired_difference(first, first, 200, seed=0) == Interval(0.0, 0.0, 0.0)
    found = paired_difference(first, second, 400, seed=0)
    assert found.value == pytest.approx(correlation_value(first) - correlation_value(second))
    # Two encoders that nearly agree: unpaired resamples would be as uncertain as each encoder by itself.
    assert found.half_width < correlation_interval(first, 400, seed=0).half_width / 4
    worse = Correlation("spearman", gold, _columns(200, noise=6.0)[1])
    assert paired_difference(first, worse, 400, seed=0).low > 0
    assert paired_difference(worse, first, 400, seed=0).high < 0


def test_columns_that_do_not_pair_up_are_refused() -> None:
    gold, predicted = _columns(20)
    first = Correlation("spearman", gold, predicted)
    for other in (Correlation("pearson", gold, predicted), Correlation("spearman", gold[::-1], predicted), predicted):
        with pytest.raises(ValueError, match=r"no paired difference|have a paired difference"):
            paired_difference(first, other, 10, seed=0)
    with pytest.raises(ValueError, match="same queries"):
        sign_flip_p(gold, predicted[1:], 10, seed=0)


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


def test_signs_of_a_picture_are_flipped_together() -> None:
    generator = np.random.default_rng(4)
    first, second = generator.random((2, 33))
    pictures = np.array([7, 3, 5, 1, 0, 2, 4, 6, 8, 9, 10]).repeat(3)
    expected = _scipy_p((first - second + 0.05).reshape(11, 3).sum(axis=1), np.ones(11))
    assert sign_flip_p(first + 0.05, second, 20_000, 0, pictures=pictures) == pytest.approx(expected, abs=0.015)
    with pytest.raises(ValueError, match="two pictures"):
        sign_flip_p(first, second, 10, 0, pictures=np.zeros((33, 2), int))


def test_p_of_several_captions_of_a_picture_is_below_a_level_as_often_as_the_level() -> None:
    generator, pictures = np.random.default_rng(0), np.arange(40).repeat(5)
    found = []
    for seed in range(300):
        second = generator.normal(size=40).repeat(5) + 0.5 * generator.normal(size=200)
        found.append([sign_flip_p(np.zeros(200), second, 200, seed, pictures=one) for one in (pictures, None)])
    by_picture, by_query = np.mean(np.array(found) <= 0.05, axis=0)
    assert 0.02 <= by_picture <= 0.09
    assert by_query > 0.2
