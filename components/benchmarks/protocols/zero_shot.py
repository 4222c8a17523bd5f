"""Zero-shot classification on features: classifier weights from prompts, and each image's correctness.

Of equally similar classes the one that stands first in the list of classes is chosen.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from components.core.metrics import Features, Indices, Reals, finite, gold_ranks, hit_at_k, top_k

TIE = "the class that is first in the list of classes"
Pair = tuple[int, int]
"""Two classes."""


def unit(features: Features) -> Features:
    """`features` `[..., dim]` divided by their norms; a zero stays zero."""
    finite(features)
    norm = np.linalg.norm(features, axis=-1, keepdims=True)
    return np.asarray(features / np.maximum(norm, np.finfo(np.float32).tiny), dtype=np.float32)


def prompt_ensemble(prompts: Features) -> Features:
    """Classifier weights of several prompts per class (Radford et al. 2021, section 3.1.4, as open_clip does it).

    Args:
        prompts: `[prompts, classes, dim]`, of any norm.

    Returns:
        `[classes, dim]`: each prompt's feature normalised, their mean, normalised again.
    """
    return unit(np.asarray(unit(prompts).mean(axis=0), dtype=np.float32))


def top_accuracy(images: Features, weights: Features, labels: Indices, depth: int = 1) -> Reals:
    """1 for each image whose class is among the `depth` most similar ones, else 0 `[images]`.

    Args:
        images: `[images, dim]`.
        weights: `[classes, dim]`.
        labels: class of each image `[images]`.
        depth: how many classes may be named.
    """
    return hit_at_k(gold_ranks(images, weights, labels), depth)


def predicted(images: Features, weights: Features) -> Indices:
    """The most similar class of each image `[images]`."""
    return top_k(images, weights, 1)[:, 0]


def confusion_matrix(labels: Indices, answers: Indices, classes: int) -> Indices:
    """How often each class was taken for each other `[classes, classes]`: rows are true classes, columns answers."""
    counts = np.bincount(labels * classes + answers, minlength=classes * classes)
    return np.asarray(counts.reshape(classes, classes), dtype=np.int64)


def most_confused(confusion: Indices, count: int, among: Collection[Pair] | None = None) -> list[Pair]:
    """The pairs of classes that are most often taken for each other, in either direction, most confused first.

    Args:
        confusion: `[classes, classes]`.
        count: how many pairs; fewer come back where fewer were ever confused.
        among: only these pairs, each with the smaller class first.

    Returns:
        Pairs with the smaller class first; of equally confused ones those of smaller classes come first.
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
    """The largest cells off the diagonal, as (true class, answer); of equal ones that of the smaller classes first.

    Args:
        confusion: `[classes, classes]`.
        count: how many cells; fewer come back where fewer are above zero.
    """
    off = confusion * (1 - np.eye(len(confusion), dtype=np.int64))
    order = np.argsort(-off, axis=None, kind="stable")[:count]
    cells = [divmod(int(place), len(off)) for place in order]
    return [(true, answer) for true, answer in cells if off[true, answer]]


def accuracy_among(images: Features, weights: Features, labels: Indices, classes: Collection[int]) -> float | None:
    """Share of the images of `classes` that get their class when only `classes` can be answered; None without images.

    Args:
        images: `[images, dim]`.
        weights: of all classes `[classes, dim]`.
        labels: class of each image `[images]`.
        classes: class numbers.
    """
    finite(images, weights)
    chosen = np.array(sorted(classes), dtype=np.int64)
    shown = np.isin(labels, chosen)
    if not shown.any():
        return None
    return float(top_accuracy(images[shown], weights[chosen], np.searchsorted(chosen, labels[shown])).mean())


def comparative_weights(
    weights: Features, differences: Features, described: Indices, updated: Indices, alpha: float
) -> Features:
    """Classifier weights that know how classes differ (PC-CLIP, section 3.4, equation 3), normalised.

    With A the updated class and B the described one, f'_A = alpha f_A + (1 - alpha)(f_B - f_{B-A}). Where several
    differences update a class, their estimates f_B - f_{B-A} are averaged, as in the released code.

    Args:
        weights: `[classes, dim]`, unit features f.
        differences: unit features f_{B-A} of "how B differs from A" `[differences, dim]`.
        described: B of each difference `[differences]`.
        updated: A of each difference `[differences]`.
        alpha: 1 leaves the weights as they are.

    Returns:
        `[classes, dim]`; classes that no difference updates are unchanged.
    """
    finite(weights, differences, alpha)
    new = weights.copy()
    estimates = weights[described] - differences
    for number in np.unique(updated):
        new[number] = alpha * weights[number] + (1 - alpha) * estimates[updated == number].mean(axis=0)
    touched = np.unique(updated)
    new[touched] = unit(new[touched])
    return new


def held_out(labels: Indices, share: float, seed: int) -> npt.NDArray[np.bool_]:
    """True for the images that are set aside `[images]`: `share` of each class, rounded, drawn by `seed`."""
    generator = np.random.default_rng(seed)
    aside = np.zeros(len(labels), dtype=np.bool_)
    for number in np.unique(labels):
        members = np.flatnonzero(labels == number)
        aside[generator.permutation(members)[: round(share * len(members))]] = True
    return aside
