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
from components.evaluation.scoring.protocols import geometry
from components.evaluation.scoring.protocols.geometry import classified, margins, pooled, unlike_pairs
from components.evaluation.scoring.protocols.zero_shot import (
    accuracy_among,
    comparative_weights,
    confidence_margins,
    confused_cells,
    confusion_matrix,
    held_out,
    most_confused,
    prompt_ensemble,
    top_accuracy,
)

X, Y, Z = np.eye(3, dtype=np.float32)


def test_margin_is_the_cosine_with_the_difference_and_zero_where_the_images_are_one() -> None:
    found = margins(np.stack([X, Y, X, X]), np.stack([Y, X, Y, X]), np.stack([X, X, Z, X]))
    assert found == pytest.approx([2**-0.5, -(2**-0.5), 0, 0])
    assert classified(found, "right").tolist() == [1, 0, 1, 1]
    assert classified(found, "wrong").tolist() == [1, 0, 0, 0]


def test_the_draw_is_the_one_of_a_seeded_permutation() -> None:
    torch.manual_seed(3)
    assert drawn(200, 100, 3).tolist() == torch.randperm(200)[:100].tolist()
    assert sorted(drawn(7, 100, 0)) == list(range(7))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 5))
def test_every_unlike_pair_of_the_drawn_comes_once(labels: list[int], seed: int) -> None:
    groups = np.array(labels)
    chosen = drawn(len(groups), 10, seed)
    found = [tuple(pair) for pair in unlike_pairs(chosen, groups).tolist()]
    order = chosen.tolist()
    wanted = {(a, b) for place, a in enumerate(order) for b in order[place + 1 :] if groups[a] != groups[b]}
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_pooled_runs_keep_their_seed_and_the_error_of_their_means() -> None:
    pictures = [np.arange(8).reshape(4, 2), np.array([[0, 1], [0, 2]])]
    found = pooled([np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.0, 1.0])], pictures)
    assert found.values.tolist() == [1, 1, 1, 1, 0, 1]
    assert found.seeds.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.pictures.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [0, 1], [0, 2]]
    assert found.standard_error == pytest.approx(0.25 / 2**0.5)


def test_uniformity_by_hand_and_over_several_blocks() -> None:
    assert geometry.uniformity(np.stack([X, X, X])) == pytest.approx(0)
    # One pair at squared distance 4, two at 2.
    wanted = math.log((math.exp(-8) + 2 * math.exp(-4)) / 3)
    assert geometry.uniformity(np.stack([X, -X, Y])) == pytest.approx(wanted)
    features = np.random.default_rng(1).normal(size=(BLOCK + 7, 3)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    potential = np.exp(4 * (features.astype(np.float64) @ features.T - 1))
    mean = (potential.sum() - np.trace(potential)) / (len(features) * (len(features) - 1))
    assert geometry.uniformity(features) == pytest.approx(math.log(mean))
    with pytest.raises(ValueError, match="at least two features"):
        geometry.uniformity(X[None])


def reals(rows: Any) -> Any:
    return np.array(rows, dtype=np.float32)


def test_each_prompt_counts_the_same_whatever_its_norm() -> None:
    prompts = reals([[[10, 0], [3, 4]], [[0, 1], [3, 4]]])
    half = np.sqrt(0.5)
    assert prompt_ensemble(prompts) == pytest.approx(reals([[half, half], [0.6, 0.8]]))


def test_confusions_count_in_both_directions() -> None:
    labels, answers = np.array([0, 0, 1, 2, 2, 2]), np.array([1, 0, 0, 1, 1, 2])
    confusion = confusion_matrix(labels, answers, 3)
    assert confusion.tolist() == [[1, 1, 0], [1, 0, 0], [0, 2, 1]]
    assert most_confused(confusion, 3) == [(0, 1), (1, 2)]
    assert most_confused(confusion, 1) == [(0, 1)]
    assert most_confused(confusion, 3, {(0, 2), (1, 2)}) == [(1, 2)]


def test_released_confusions_are_the_largest_cells_as_the_authors_loop_finds_them() -> None:
    """The loop of github.com/dsam99/pc_clip, run.py: the largest cell, set to zero, three times."""
    confusion = np.array([[9, 1, 0], [3, 9, 2], [0, 3, 9]])
    assert confused_cells(confusion, 9) == [(1, 0), (2, 1), (1, 2), (0, 1)], "of equal cells the one that comes first"
    assert confused_cells(np.diag([3, 2]), 3) == []
    confusion = np.random.default_rng(3).integers(0, 50, size=(12, 12))
    left, cells = torch.from_numpy(confusion.copy()).fill_diagonal_(0), []
    for _ in range(3):
        place = int(left.argmax())
        cells.append((place // 12, place % 12))
        left[cells[-1]] = 0
    assert confused_cells(confusion, 3) == cells


def test_among_the_confused_classes_no_other_can_be_answered() -> None:
    weights = reals([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    images = reals([[0.6, 0, 0.8], [0.6, 0.8, 0], [0, 0.6, 0.8], [0, 0, 1]])
    labels = np.array([0, 0, 1, 2])
    # Over all classes the first three are wrong; without class 2 the first and the third are right.
    assert top_accuracy(images, weights, labels).tolist() == [0, 0, 0, 1]
    assert accuracy_among(images, weights, labels, {1, 0}) == pytest.approx(2 / 3)
    assert accuracy_among(images[3:], weights, labels[3:], {1, 0}) is None


def test_estimates_of_one_class_are_averaged() -> None:
    weights = reals([[1, 0], [0, 1], [0.6, 0.8]])
    # Estimates of class 0: (0, 1) - (0, 1) = (0, 0) and (0.6, 0.8) - (0, -1) = (0.6, 1.8); mean (0.3, 0.9).
    new = comparative_weights(weights, reals([[0, 1], [0, -1]]), np.array([1, 2]), np.array([0, 0]), 0.0)
    assert new[0] == pytest.approx(np.array([0.3, 0.9]) / np.sqrt(0.9))
    assert weights[0].tolist() == [1, 0], "the old weights stay"


def test_margins_are_of_a_softmax_of_plain_cosines() -> None:
    """Cosines 1, 0.8 and 0: e, e^0.8 and 1 of 5.9438, whose first two differ by 0.0829."""
    weights = reals([[1, 0], [0.8, 0.6], [0, 1]])
    assert confidence_margins(reals([[1, 0], [0, 1]]), weights).tolist() == pytest.approx([0.08290, 0.16175], abs=1e-5)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 5))
def test_the_same_share_of_every_class_is_held_out(classes: list[int], seed: int) -> None:
    labels = np.array(classes)
    aside = held_out(labels, 0.2, seed)
    assert (aside == held_out(labels, 0.2, seed)).all()
    for number in set(classes):
        assert aside[labels == number].sum() == round(0.2 * classes.count(number))
