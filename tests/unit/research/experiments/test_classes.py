"""Confusions of a zero-shot classifier, on features given by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.evaluation.scoring.protocols.zero_shot import top_accuracy
from research.experiments.parts.classes import (
    accuracy_among,
    confidence_margins,
    confused_cells,
    confusion_matrix,
    held_out,
    most_confused,
)


def reals(rows: Any) -> Any:
    return np.array(rows, dtype=np.float32)


def test_confusions_count_in_both_directions_and_released_ones_are_the_largest_cells() -> None:
    labels, answers = np.array([0, 0, 1, 2, 2, 2]), np.array([1, 0, 0, 1, 1, 2])
    confusion = confusion_matrix(labels, answers, 3)
    assert confusion.tolist() == [[1, 1, 0], [1, 0, 0], [0, 2, 1]]
    assert most_confused(confusion, 3) == [(0, 1), (1, 2)]
    assert most_confused(confusion, 1) == [(0, 1)]
    assert most_confused(confusion, 3, {(0, 2), (1, 2)}) == [(1, 2)]
    # The loop of github.com/dsam99/pc_clip, run.py: the largest cell, set to zero, three times.
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


def test_among_confused_classes_no_other_is_answered_and_margins_are_of_a_softmax() -> None:
    weights = reals([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    images = reals([[0.6, 0, 0.8], [0.6, 0.8, 0], [0, 0.6, 0.8], [0, 0, 1]])
    labels = np.array([0, 0, 1, 2])
    # Over all classes the first three are wrong; without class 2 the first and the third are right.
    assert top_accuracy(images, weights, labels).tolist() == [0, 0, 0, 1]
    assert accuracy_among(images, weights, labels, {1, 0}) == pytest.approx(2 / 3)
    assert accuracy_among(images[3:], weights, labels[3:], {1, 0}) is None
    # Cosines 1, 0.8 and 0: e, e^0.8 and 1 of 5.9438, whose first two differ by 0.0829.
    weights = reals([[1, 0], [0.8, 0.6], [0, 1]])
    assert confidence_margins(reals([[1, 0], [0, 1]]), weights).tolist() == pytest.approx([0.08290, 0.16175], abs=1e-5)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 5))
def test_the_same_share_of_every_class_is_held_out(classes: list[int], seed: int) -> None:
    labels = np.array(classes)
    aside = held_out(labels, 0.2, seed)
    assert (aside == held_out(labels, 0.2, seed)).all()
    for number in set(classes):
        assert aside[labels == number].sum() == round(0.2 * classes.count(number))
