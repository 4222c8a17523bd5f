"""Difference-based classification on features given by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.benchmarks.protocols.geometry import classified, drawn, margins, pooled, unlike_pairs

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


def test_pairs_are_of_different_groups_and_in_the_order_drawn() -> None:
    pairs = unlike_pairs(np.array([3, 0, 2]), np.array([1, 1, 1, 0]))
    assert pairs.tolist() == [[3, 0], [3, 2]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 5))
def test_every_unlike_pair_of_the_drawn_comes_once(labels: list[int], seed: int) -> None:
    groups = np.array(labels)
    chosen = drawn(len(groups), 10, seed)
    found = [tuple(pair) for pair in np.sort(unlike_pairs(chosen, groups), axis=1).tolist()]
    wanted = {(a, b) for a in chosen.tolist() for b in chosen.tolist() if a < b and groups[a] != groups[b]}
    assert len(found) == len(set(found))
    assert set(found) == wanted


def test_pooled_runs_keep_their_seed_and_the_error_of_their_means() -> None:
    pictures = [np.arange(8).reshape(4, 2), np.array([[0, 1], [0, 2]])]
    found = pooled([np.array([1.0, 1.0, 1.0, 1.0]), np.array([0.0, 1.0])], pictures)
    assert found.values.tolist() == [1, 1, 1, 1, 0, 1]
    assert found.seeds.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.pictures.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [0, 1], [0, 2]]
    assert found.standard_error == pytest.approx(0.25 / 2**0.5)
