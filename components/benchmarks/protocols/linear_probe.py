"""A linear classifier on frozen image features (Radford et al. 2021, appendix A.3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from components.benchmarks.protocols.zero_shot import held_out
from components.core.metrics import Features, Indices, finite

HELD_OUT = 0.2
ITERATIONS = 1000
_FIRST = tuple(range(-6, 7, 2))
_FINEST = 1 / 8


def probe_answers(train: Features, labels: Indices, test: Features, seed: int) -> Indices:
    """Classes that logistic regression gives the test images `[test]`.

    Its strength is the one that is best on a fifth of each class of the training images, drawn by `seed`; it is then
    fitted to all of them. CLIP's paper has features as the image tower gives them, here they are of unit length.

    Args:
        train: unit features `[train, dim]`.
        labels: classes `[train]`.
        test: unit features `[test, dim]`.
        seed: of the draw.
    """
    finite(train, test)
    aside = held_out(labels, HELD_OUT, seed)
    # Classes too small to set one image aside leave nothing to choose by.
    chosen = 0.0 if not aside.any() else best_exponent(_accuracy(train, labels, aside))
    answers: Indices = _fitted(train, labels, chosen).predict(test)
    return answers


def few_of_each(labels: Indices, count: int, seed: int) -> Indices:
    """Rows of `count` images of each class, or of all where a class has fewer, drawn by `seed`; sorted.

    Args:
        labels: classes `[images]`.
        count: how many of a class.
        seed: of the draw.
    """
    generator = np.random.default_rng(seed)
    drawn = [generator.permutation(np.flatnonzero(labels == number))[:count] for number in np.unique(labels)]
    return np.sort(np.concatenate(drawn)).astype(np.int64)


def best_exponent(accuracy: Callable[[float], float]) -> float:
    """The power of ten for C between -6 and 6 that a search in halving steps finds, down to an eighth of a decade.

    The search starts at steps of two decades and goes on around the best point so far (CLIP, appendix A.3); of equally
    good ones the smaller is taken, which is the stronger regularisation.
    """
    best = max(_FIRST, key=accuracy)
    exponent, step = float(best), 1.0
    while step >= _FINEST:
        near = [exponent - step, exponent, exponent + step]
        inside = [one for one in near if _FIRST[0] <= one <= _FIRST[-1]]
        exponent = max(inside, key=accuracy)
        step /= 2
    return exponent


def _accuracy(train: Features, labels: Indices, aside: Any) -> Callable[[float], float]:
    @cache
    def accuracy(exponent: float) -> float:
        model = _fitted(train[~aside], labels[~aside], exponent)
        return float(np.mean(model.predict(train[aside]) == labels[aside]))

    return accuracy


def _fitted(features: Features, labels: Indices, exponent: float) -> Any:
    from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

    return LogisticRegression(C=10.0**exponent, max_iter=ITERATIONS).fit(np.asarray(features), labels)
