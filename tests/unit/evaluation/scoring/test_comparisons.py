"""Permutation tests agree with scipy's, and encoders of all training seeds are compared."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from components.core.compute.metrics import Reals
from components.evaluation.scoring.comparisons import difference_of, sign_flip_p
from components.evaluation.scoring.intervals import interval_over_seeds, paired_interval


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
