"""Linear probes on features: CLIP's logistic regression, and the linear layer of PC-CLIP's released code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from components.benchmarks.scoring.protocols.geometry import SEEDS
from components.benchmarks.scoring.protocols.zero_shot import HELD_OUT, held_out
from components.core.compute.metrics import Features, Indices, finite

ITERATIONS = 1000
_FIRST = tuple(range(-6, 7, 2))
_FINEST = 1 / 8
RATE, EPOCHS, BATCH = 1e-3, 10, 32
"""Of the released linear layer: Adam's learning rate, passes over the images, images in a step."""


def probe_answers(train: Features, labels: Indices, test: Features, seed: int) -> Indices:
    """Classes `[test]` that logistic regression on unit features `[train, dim]` predicts for those of the test images.

    Its strength is chosen on a fifth of each class's training images, drawn by `seed`; it is then fitted to all of
    them. CLIP's paper uses the image tower's raw features, this function unit features.
    """
    finite(train, test)
    chosen_by = held_out(labels, HELD_OUT, seed)
    # Small classes may not have an image to hold out.
    chosen = 0.0 if not chosen_by.any() else best_exponent(_accuracy(train, labels, chosen_by))
    answers: Indices = _fitted(train, labels, chosen).predict(test)
    return answers


def few_of_each(labels: Indices, count: int, seed: int, share: float = 1.0) -> Indices:
    """Sorted rows of `count` images of each class, drawn by `seed`, at most `share` of a class, rounded down."""
    generator = np.random.default_rng(seed)
    shuffled = (generator.permutation(np.flatnonzero(labels == number)) for number in np.unique(labels))
    drawn = [rows[: min(count, int(share * len(rows)))] for rows in shuffled]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def best_exponent(accuracy: Callable[[float], float]) -> float:
    """The best power of ten for C between -6 and 6, by a search in halving steps down to an eighth of a decade.

    The search starts at steps of two decades and continues around the best point so far (CLIP, appendix A.3); of
    equally good points the smaller is taken, which regularises more.
    """
    best = max(_FIRST, key=accuracy)
    exponent, step = float(best), 1.0
    while step >= _FINEST:
        near = [exponent - step, exponent, exponent + step]
        inside = [one for one in near if _FIRST[0] <= one <= _FIRST[-1]]
        exponent = max(inside, key=accuracy)
        step /= 2
    return exponent


def _accuracy(train: Features, labels: Indices, held: Any) -> Callable[[float], float]:
    @cache
    def accuracy(exponent: float) -> float:
        model = _fitted(train[~held], labels[~held], exponent)
        return float(np.mean(model.predict(train[held]) == labels[held]))

    return accuracy


def _fitted(features: Features, labels: Indices, exponent: float) -> Any:
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    return LogisticRegression(C=10.0**exponent, max_iter=ITERATIONS).fit(np.asarray(features), labels)


def released_answers(train: Features, labels: Indices, test: Features, classes: int, seed: int) -> list[Indices]:
    """Classes `[test]` that each of `SEEDS` linear layers predicts, trained on raw features `[train, dim]`.

    As in PC-CLIP's released test_embeddings.py (github.com/dsam99/pc_clip): torch's initial weights, cross-entropy,
    Adam without decay, every image once per epoch in a new order. `seed` is of weights and orders.
    """
    import torch
    from torch.nn.functional import cross_entropy

    finite(train, test)
    shown, wanted, tested = torch.tensor(train), torch.tensor(labels), torch.tensor(test)
    answers = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(SEEDS):
            head = torch.nn.Linear(shown.shape[1], classes)
            optimizer = torch.optim.Adam(head.parameters(), lr=RATE)
            for _ in range(EPOCHS):
                for rows in torch.split(torch.randperm(len(shown)), BATCH):
                    optimizer.zero_grad()
                    cross_entropy(head(shown[rows]), wanted[rows]).backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
            with torch.inference_mode():
                answers.append(np.asarray(head(tested).argmax(dim=1).numpy(), dtype=np.int64))
    return answers
