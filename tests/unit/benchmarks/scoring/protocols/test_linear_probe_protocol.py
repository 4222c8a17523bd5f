"""Linear probes on features of two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.benchmarks.scoring.protocols.linear_probe import best_exponent, probe_answers, released_answers


def reals(rows: Any) -> Any:
    return np.array(rows, dtype=np.float32)


@given(st.integers(-48, 48))
def test_the_search_finds_the_best_of_a_smooth_curve_to_an_eighth_of_a_decade(best: int) -> None:
    assert best_exponent(lambda exponent: -abs(exponent - best / 8)) == best / 8


def test_equal_strengths_give_the_strongest_regularisation() -> None:
    assert best_exponent(lambda exponent: 0.0) == -6


def test_a_probe_learns_what_a_line_can_separate() -> None:
    train = reals([[1, 0], [0.99, 0.1], [0.98, -0.1], [0, 1], [0.1, 0.99], [-0.1, 0.98]] * 5)
    labels = np.array([4, 4, 4, 9, 9, 9] * 5)
    assert probe_answers(train, labels, reals([[0.9, 0.2], [0.2, 0.9]]), seed=0).tolist() == [4, 9]


def test_the_released_layer_is_adam_on_cross_entropy_for_ten_epochs_of_batches_of_32() -> None:
    """Five trainings again by Adam's equations in NumPy, from torch's weights and orders of the same seed."""
    generator = np.random.default_rng(0)
    train, test = (generator.normal(size=(rows, 2)).astype(np.float32) * 3 for rows in (40, 400))
    labels = (train[:, 0] + 0.5 * generator.normal(size=40) > 0).astype(np.int64) + (train[:, 1] > 2)
    found = released_answers(train, labels, test, 3, seed=7)
    torch.manual_seed(7)
    for answers in found:
        head = torch.nn.Linear(2, 3)
        weights = np.concatenate([head.weight.detach().numpy().T, head.bias.detach().numpy()[None]]).astype(np.float64)
        first, second, step = np.zeros_like(weights), np.zeros_like(weights), 0
        for _ in range(10):
            order = torch.randperm(40).numpy()
            for rows in (order[:32], order[32:]):
                inputs = np.c_[train[rows], np.ones(len(rows))]
                shares = np.exp(inputs @ weights)
                shares /= shares.sum(axis=1, keepdims=True)
                gradient = inputs.T @ (shares - np.eye(3)[labels[rows]]) / len(rows)
                step += 1
                first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
                weights -= 1e-3 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        expected = (np.c_[test, np.ones(400)] @ weights).argmax(axis=1)
        assert (answers == expected).mean() > 0.995
    assert len(found) == 5
    assert any((answers != found[0]).any() for answers in found)
