"""Geometry and zero-shot classification on features given by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.core.compute.metrics import BLOCK
from components.data.test_sets.files import drawn
from components.evaluation.benchmarks.published.difference_classification import pooled, unlike_pairs
from components.evaluation.scoring.protocols.geometry import classified, margins
from components.evaluation.scoring.protocols.zero_shot import comparative_weights, prompt_ensemble
from research.experiments import embedding_geometry

X, Y, Z = np.eye(3, dtype=np.float32)


def test_margins_and_uniformity_by_hand() -> None:
    found = margins(np.stack([X, Y, X, X]), np.stack([Y, X, Y, X]), np.stack([X, X, Z, X]))
    assert found == pytest.approx([2**-0.5, -(2**-0.5), 0, 0])
    assert classified(found, "right").tolist() == [1, 0, 1, 1]
    assert classified(found, "wrong").tolist() == [1, 0, 0, 0]
    assert embedding_geometry.uniformity(np.stack([X, X, X])) == pytest.approx(0)
    # One pair at squared distance 4, two at 2.
    wanted = math.log((math.exp(-8) + 2 * math.exp(-4)) / 3)
    assert embedding_geometry.uniformity(np.stack([X, -X, Y])) == pytest.approx(wanted)
    features = np.random.default_rng(1).normal(size=(BLOCK + 7, 3)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    potential = np.exp(4 * (features.astype(np.float64) @ features.T - 1))
    mean = (potential.sum() - np.trace(potential)) / (len(features) * (len(features) - 1))
    assert embedding_geometry.uniformity(features) == pytest.approx(math.log(mean))
    with pytest.raises(ValueError, match="at least two features"):
        embedding_geometry.uniformity(X[None])


def test_draws_are_seeded_permutations_and_pooled_runs_keep_their_seed_and_error() -> None:
    torch.manual_seed(3)
    assert drawn(200, 100, 3).tolist() == torch.randperm(200)[:100].tolist()
    assert sorted(drawn(7, 100, 0)) == list(range(7))
    pictures = [np.arange(8).reshape(4, 2), np.array([[0, 1], [0, 2]])]
    found = pooled("x", [np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.0, 1.0])], pictures)
    assert found.values["x/accuracy"].tolist() == [1, 1, 1, 1, 0, 1]
    assert found.strata["x/accuracy"].tolist() == [0, 0, 0, 0, 1, 1]
    assert found.pictures["x/accuracy"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [0, 1], [0, 2]]
    assert found.scalars["x/standard_error"] == pytest.approx(0.25 / 2**0.5)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 5))
def test_every_unlike_pair_of_the_drawn_comes_once(labels: list[int], seed: int) -> None:
    groups = np.array(labels)
    chosen = drawn(len(groups), 10, seed)
    found = [tuple(pair) for pair in unlike_pairs(chosen, groups).tolist()]
    order = chosen.tolist()
    wanted = {(a, b) for place, a in enumerate(order) for b in order[place + 1 :] if groups[a] != groups[b]}
    assert len(found) == len(set(found))
    assert set(found) == wanted


def reals(rows: Any) -> Any:
    return np.array(rows, dtype=np.float32)


def test_each_prompt_counts_the_same_and_estimates_of_one_class_are_averaged() -> None:
    prompts = reals([[[10, 0], [3, 4]], [[0, 1], [3, 4]]])
    half = np.sqrt(0.5)
    assert prompt_ensemble(prompts) == pytest.approx(reals([[half, half], [0.6, 0.8]]))
    weights = reals([[1, 0], [0, 1], [0.6, 0.8]])
    # Estimates of class 0: (0, 1) - (0, 1) = (0, 0) and (0.6, 0.8) - (0, -1) = (0.6, 1.8); mean (0.3, 0.9).
    new = comparative_weights(weights, reals([[0, 1], [0, -1]]), np.array([1, 2]), np.array([0, 0]), 0.0)
    assert new[0] == pytest.approx(np.array([0.3, 0.9]) / np.sqrt(0.9))
    assert weights[0].tolist() == [1, 0], "the old weights stay"
