"""Zero-shot classification with its confusions, on features; of equally similar classes the first one is chosen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.core.compute.devices import FeatureGallery, fetched
from components.core.compute.metrics import Features, Indices, Reals, finite, top_k
from components.evaluation.scoring.protocols.zero_shot import top_accuracy

TIE = "the class that is first in the list of classes"
Pair = tuple[int, int]
"""Two classes."""
ALPHAS = (0.5, 0.7, 0.9)
"""PC-CLIP, appendix A.1; its tables are of 0.9."""
PAIRS = 3
HELD_OUT = 0.2
"""Share of each class's images by which choices are made."""


@dataclass(frozen=True)
class Classified:
    """Images and a classifier: unit features `[images, dim]`, labels `[images]`, weights `[classes, dim]`."""

    images: Features
    labels: Indices
    weights: Features

    def part(self, chosen: npt.NDArray[np.bool_]) -> Classified:
        """The chosen images with the same classifier."""
        return Classified(self.images[chosen], self.labels[chosen], self.weights)

    def confused(self, among: set[Pair] | None = None) -> list[Pair]:
        """The most confused pairs of classes, only those of `among` if given."""
        if not len(self.labels):
            return []
        answers = predicted(self.images, self.weights)
        return most_confused(confusion_matrix(self.labels, answers, len(self.weights)), PAIRS, among)


def predicted(images: Features, weights: Features) -> Indices:
    """The most similar class of each image `[images]`."""
    return top_k(images, weights, 1)[:, 0]


def confidence_margins(images: Features, weights: Features) -> Reals:
    """How much more probable the most probable class is than the next `[images]`.

    Probabilities are the softmax of plain cosines, as in PC-CLIP's released run.py, without an encoder's scale.
    """
    finite(images, weights)
    cosines = np.asarray(fetched(FeatureGallery(weights).similarities(images)), dtype=np.float64)
    shares = np.exp(cosines - cosines.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    second, first = np.sort(shares, axis=1)[:, -2:].T
    return np.asarray(first - second)


def confusion_matrix(labels: Indices, answers: Indices, classes: int) -> Indices:
    """Counts of each true class (row) and predicted class (column) `[classes, classes]`."""
    counts = np.bincount(labels * classes + answers, minlength=classes * classes)
    return np.asarray(counts.reshape(classes, classes), dtype=np.int64)


def most_confused(confusion: Indices, count: int, among: Collection[Pair] | None = None) -> list[Pair]:
    """At most `count` pairs of classes that are most often confused, in either direction, most confused first.

    Pairs have the smaller class first, also those of `among`, the only ones that count if given; of equally confused
    pairs those of smaller classes come first.
    """
    both = np.triu(confusion + confusion.T, k=1)
    allowed = both > 0
    if among is not None:
        wanted = np.zeros_like(allowed)
        wanted[tuple(np.array(sorted(among), dtype=np.int64).reshape(-1, 2).T)] = True
        allowed &= wanted
    firsts, seconds = np.nonzero(allowed)
    order = np.argsort(-both[firsts, seconds], kind="stable")[:count]
    return [(int(firsts[place]), int(seconds[place])) for place in order]


def confused_cells(confusion: Indices, count: int) -> list[Pair]:
    """At most `count` largest cells over 0 off the diagonal, (true, predicted); ties: smaller classes first."""
    off = confusion * (1 - np.eye(len(confusion), dtype=np.int64))
    order = np.argsort(-off, axis=None, kind="stable")[:count]
    cells = [divmod(int(place), len(off)) for place in order]
    return [(true, answer) for true, answer in cells if off[true, answer]]


def accuracy_among(images: Features, weights: Features, labels: Indices, classes: Collection[int]) -> float | None:
    """Accuracy on the images of `classes` if only `classes` can be predicted; None without images."""
    finite(images, weights)
    chosen = np.array(sorted(classes), dtype=np.int64)
    shown = np.isin(labels, chosen)
    if not shown.any():
        return None
    return float(top_accuracy(images[shown], weights[chosen], np.searchsorted(chosen, labels[shown])).mean())


def held_out(labels: Indices, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """True for the images that are held out `[images]`: `share` of each class, rounded, drawn by `seed`."""
    generator = np.random.default_rng(seed)
    chosen = np.zeros(len(labels), dtype=np.bool_)
    for number in np.unique(labels):
        members = np.flatnonzero(labels == number)
        chosen[generator.permutation(members)[: round(share * len(members))]] = True
    return chosen
