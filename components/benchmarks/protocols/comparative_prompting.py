"""Comparative prompting: class prompts corrected by how two confused classes differ (PC-CLIP, section 3.4 and A.2).

`comparative_scores` takes the three pairs of classes that are most confused, in either direction, on a fifth of the
images, drawn by the seed; only the other images count. A pair is only taken if the file of differences describes it,
and updates every class that a text is about.

`released_scores` is what the authors do: the three largest cells of the confusion matrix of the test images, which
then are scored, and pairs of its own for each encoder. Each cell has one text, "how the true class differs from the
answer", which updates the answer's class. For EuroSAT the released list of the base model has both directions of its
three pairs (group `..._both`), that of the fine-tuned ones a single one. How the authors put cells into their list,
which is written by hand, is read from its order and from what the code prints. Where the file lacks the text of a
cell, the group is left out.

`top1_confused` is the accuracy on images of the chosen pairs' classes when only these can be answered (table 3;
`run_comparative_subset` of the released code).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.class_texts import Differences, class_differences
from components.benchmarks.protocols.zero_shot import (
    Pair,
    accuracy_among,
    comparative_weights,
    confused_cells,
    confusion_matrix,
    held_out,
    most_confused,
    predicted,
    top_accuracy,
)
from components.benchmarks.scores import Scores
from components.core.metrics import Features, Indices, Reals

ALPHAS = (0.5, 0.7, 0.9)
"""PC-CLIP, appendix A.1; its tables are of 0.9."""
PAIRS = 3
HELD_OUT = 0.2


@dataclass(frozen=True)
class Classified:
    """Images before a classifier: unit features `[images, dim]`, labels `[images]`, weights `[classes, dim]`."""

    images: Features
    labels: Indices
    weights: Features

    def part(self, chosen: npt.NDArray[np.bool_]) -> Classified:
        """The chosen images before the same classifier."""
        return Classified(self.images[chosen], self.labels[chosen], self.weights)

    def confused(self, among: set[Pair]) -> list[Pair]:
        """The pairs of classes that are most often taken for each other."""
        answers = predicted(self.images, self.weights)
        return most_confused(confusion_matrix(self.labels, answers, len(self.weights)), PAIRS, among)


def comparative_scores(
    context: PublishedContext, name: str, path: Path, classes: Sequence[str], plain: Classified
) -> Scores:
    """Accuracy at each alpha with pairs chosen on images that do not count, in groups below the benchmark `name`.

    Raises:
        InputError: the file of differences is missing or damaged.
    """
    scores = Scores({})
    differences = class_differences(path, classes)
    if differences is None:
        return scores
    ends = _ends(differences)
    aside = held_out(plain.labels, HELD_OUT, context.seed)
    pairs = plain.part(aside).confused({(min(pair), max(pair)) for pair in ends})
    if pairs:
        used = [row for row, pair in enumerate(ends) if (min(pair), max(pair)) in pairs]
        _add(scores, context, f"{name}/comparative", plain.part(~aside), differences, used)
    return scores


def released_scores(
    context: PublishedContext, name: str, path: Path, names: Sequence[Sequence[str]], plain: Classified
) -> Scores:
    """Accuracy at each alpha as the authors have it, in groups below the benchmark `name`.

    Args:
        context: gives features of the differences.
        name: the benchmark.
        path: a table of class differences.
        names: lists of the classes' names; the table may use any.
        plain: the test images before the classifier of plain prompts.

    Raises:
        InputError: the file of differences is missing or damaged.
    """
    scores = Scores({})
    differences = class_differences(path, *names)
    if differences is None:
        return scores
    answers = predicted(plain.images, plain.weights)
    cells = confused_cells(confusion_matrix(plain.labels, answers, len(plain.weights)), PAIRS)
    ends = _ends(differences)
    for group, wanted in (("", set(cells)), ("_both", {*cells, *(cell[::-1] for cell in cells)})):
        if wanted and wanted <= set(ends):
            used = [row for row, pair in enumerate(ends) if pair in wanted]
            _add(scores, context, f"{name}/comparative{group}", plain, differences, used)
    return scores


def _ends(differences: Differences) -> list[Pair]:
    """The described and the other class of each text."""
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
