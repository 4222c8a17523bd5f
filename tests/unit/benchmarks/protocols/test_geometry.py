"""Geometry of features given by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.benchmarks.protocols import geometry
from components.core.metrics import BLOCK

X, Y, Z = np.eye(3, dtype=np.float32)


def test_distances_of_differences_by_hand() -> None:
    first, second, text = np.stack([X, X, X]), np.stack([Y, Y, X]), np.stack([X, Z, Y])
    near = geometry.comparison_distance(first, second, text)
    assert near == pytest.approx([1 - 2**-0.5, 1, 1])
    assert geometry.reverse_comparison_distance(first, second, text) == pytest.approx(2 - near)


def test_antisymmetry_is_one_for_opposites_and_minus_one_for_one_text() -> None:
    assert geometry.antisymmetry(np.stack([X, X, X]), np.stack([-X, X, Y])).tolist() == [1, -1, 0]


def test_gap_and_alignment_by_hand() -> None:
    images, texts = np.stack([X, -X]), np.stack([Y, Y])
    assert geometry.modality_gap(images, texts) == pytest.approx(1)
    assert geometry.alignment(images, np.stack([X, X])) == pytest.approx([0, 4])


def test_uniformity_of_equal_and_of_opposite_features() -> None:
    assert geometry.uniformity(np.stack([X, X, X])) == pytest.approx(0)
    # One pair at squared distance 4, two at 2.
    wanted = math.log((math.exp(-8) + 2 * math.exp(-4)) / 3)
    assert geometry.uniformity(np.stack([X, -X, Y])) == pytest.approx(wanted)
    with pytest.raises(ValueError, match="single feature"):
        geometry.uniformity(X[None])


@given(st.integers(2, 40), st.integers(0, 5))
def test_uniformity_is_the_mean_over_distinct_pairs(count: int, seed: int) -> None:
    features = _drawn(count, seed)
    squared = [np.square(a - b).sum() for row, a in enumerate(features) for b in features[row + 1 :]]
    assert geometry.uniformity(features) == pytest.approx(math.log(np.mean(np.exp(-2 * np.array(squared)))), abs=1e-5)


def test_uniformity_over_several_blocks() -> None:
    features = _drawn(BLOCK + 7, 1)
    potential = np.exp(4 * (features.astype(np.float64) @ features.T - 1))
    mean = (potential.sum() - np.trace(potential)) / (len(features) * (len(features) - 1))
    assert geometry.uniformity(features) == pytest.approx(math.log(mean))


def _drawn(count: int, seed: int) -> np.ndarray:
    features = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
    return features / np.linalg.norm(features, axis=1, keepdims=True)


def test_analogies_never_answer_with_a_word_of_the_question_and_lose_ties() -> None:
    words = np.stack([X, Y, Z, X + Y, X + Z, Y])
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    # z - x + y is as near to z and y, which are asked, as to 5, which repeats y; all others are farther.
    assert geometry.analogy_ranks(words, np.array([[0, 2, 1, 5]])).tolist() == [0]
    # A word that repeats the right one ties with it and wins.
    assert geometry.analogy_ranks(words, np.array([[0, 2, 3, 1]])).tolist() == [1]
    # The right word is one of the question's.
    assert geometry.analogy_ranks(words, np.array([[0, 2, 1, 2]])).tolist() == [6]
