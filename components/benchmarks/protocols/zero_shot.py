"""Zero-shot classification on features, plain and with comparative prompting.

Of equally similar classes the one that stands first in the list of classes is chosen.

Comparative prompting: class prompts corrected by how two confused classes differ (PC-CLIP, section 3.4 and A.2).

`comparative_scores` takes the three pairs of classes that are most confused, in either direction, on a fifth of the
images, drawn by the seed; only the other images count. A pair is only taken if the file of differences describes it,
and updates every class that a text is about.

`released_scores` is what the authors do: the three largest cells of the confusion matrix of the test images, which
then are scored, and pairs of its own for each encoder. Each cell has one text, "how the true class differs from the
answer", which updates the answer's class. For EuroSAT the released list of the base model has both directions of its
three pairs (group `..._both`), that of the fine-tuned ones a single one. How the authors put cells into their list,
which is written by hand, is read from its order and from what the code prints. Where the file lacks the text of a
cell, the group is left out.

Both give the pairs that they want texts about, in both directions, to the prompt task `class_difference`.

`top1_confused` is the accuracy on images of the chosen pairs' classes when only these can be answered (table 3;
`run_comparative_subset` of the released code).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.class_texts import ASKED_PAIRS, Differences, class_differences
from components.benchmarks.scores import Scores
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


def confidence_margins(images: Features, weights: Features) -> Reals:
    """How much more probable the most probable class is than the next `[images]`.

    Probabilities are the softmax of plain cosines, as in PC-CLIP's released run.py, without an encoder's scale.
    """
    finite(images, weights)
    cosines = np.asarray(images @ weights.T, dtype=np.float64)
    shares = np.exp(cosines - cosines.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    second, first = np.sort(shares, axis=1)[:, -2:].T
    return np.asarray(first - second)


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


ALPHAS = (0.5, 0.7, 0.9)
"""PC-CLIP, appendix A.1; its tables are of 0.9."""
PAIRS = 3
HELD_OUT = 0.2
"""Share of the images of each class that choices are made by."""


@dataclass(frozen=True)
class Classified:
    """Images before a classifier: unit features `[images, dim]`, labels `[images]`, weights `[classes, dim]`."""

    images: Features
    labels: Indices
    weights: Features

    def part(self, chosen: npt.NDArray[np.bool_]) -> Classified:
        """The chosen images before the same classifier."""
        return Classified(self.images[chosen], self.labels[chosen], self.weights)

    def confused(self, among: set[Pair] | None = None) -> list[Pair]:
        """The pairs of classes that are most often taken for each other, only those of `among` where it is given."""
        if not len(self.labels):
            return []
        answers = predicted(self.images, self.weights)
        return most_confused(confusion_matrix(self.labels, answers, len(self.weights)), PAIRS, among)


def comparative_scores(
    context: PublishedContext, name: str, path: Path | None, classes: Sequence[str], plain: Classified
) -> Scores:
    """Accuracy at each alpha with pairs chosen on images that do not count, in groups below the benchmark `name`.

    Raises:
        InputError: the file of differences is missing or damaged.
    """
    scores = Scores({})
    aside = held_out(plain.labels, HELD_OUT, context.seed)
    chosen_by = plain.part(aside)
    _ask(context, classes, chosen_by.confused())
    differences = class_differences(path, classes) if path else None
    ends = _ends(differences)
    pairs = chosen_by.confused({(min(pair), max(pair)) for pair in ends})
    if differences is None or not pairs:
        context.left_out.append(f"comparative: no text on two classes that are confused in {path or _NO_TABLE}")
        return scores
    used = [row for row, pair in enumerate(ends) if (min(pair), max(pair)) in pairs]
    _add(scores, context, f"{name}/comparative", plain.part(~aside), differences, used)
    return scores


def released_scores(
    context: PublishedContext, name: str, path: Path | None, names: Sequence[Sequence[str]], plain: Classified
) -> Scores:
    """Accuracy at each alpha as the authors have it, in groups below the benchmark `name`.

    Args:
        context: gives features of the differences.
        name: the benchmark.
        path: a table of class differences; None where there is none.
        names: lists of the classes' names; the table may use any, and questions use the last.
        plain: the test images before the classifier of plain prompts.

    Raises:
        InputError: the file of differences is missing or damaged.
    """
    scores = Scores({})
    answers = predicted(plain.images, plain.weights)
    cells = confused_cells(confusion_matrix(plain.labels, answers, len(plain.weights)), PAIRS)
    _ask(context, names[-1], cells)
    differences = class_differences(path, *names) if path else None
    ends = _ends(differences)
    for group, wanted in (("", cells), ("_both", [*cells, *(cell[::-1] for cell in cells)])):
        missing = [pair for pair in wanted if pair not in ends]
        if missing:
            one, other = (names[-1][number] for number in missing[0])
            lacks = f"no text on how '{one}' differs from '{other}' ({len(missing)} such) in {path or _NO_TABLE}"
            context.left_out.append(f"comparative{group}: {lacks}")
        elif differences is not None and wanted:
            used = [row for row, pair in enumerate(ends) if pair in wanted]
            _add(scores, context, f"{name}/comparative{group}", plain, differences, used)
    return scores


_NO_TABLE = "any table: give --option class_differences=<table>"


def _ask(context: PublishedContext, classes: Sequence[str], pairs: Sequence[Pair]) -> None:
    """Have the pairs written out, in both directions."""
    both = [*pairs, *(pair[::-1] for pair in pairs)]
    context.lists[ASKED_PAIRS] = [(classes[one], classes[other]) for one, other in dict.fromkeys(both)]


def _ends(differences: Differences | None) -> list[Pair]:
    """The described and the other class of each text."""
    if differences is None:
        return []
    return list(zip(differences.described.tolist(), differences.other.tolist(), strict=True))


def _add(
    scores: Scores, context: PublishedContext, prefix: str, plain: Classified, differences: Differences, used: list[int]
) -> None:
    """Scores of the classifier that the texts of rows `used` correct."""
    texts = context.texts([differences.texts[row] for row in used])
    described, other = differences.described[used], differences.other[used]
    confused = {*described.tolist(), *other.tolist()}

    def report(group: str, weights: Features) -> None:
        right: Reals = top_accuracy(plain.images, weights, plain.labels)
        scores.values[f"{prefix}_{group}/top1"] = right
        among = accuracy_among(plain.images, weights, plain.labels, confused)
        if among is not None:
            scores.scalars[f"{prefix}_{group}/top1_confused"] = among

    report("plain", plain.weights)
    for alpha in ALPHAS:
        report(f"alpha_{alpha}", comparative_weights(plain.weights, texts, described, other, alpha))
