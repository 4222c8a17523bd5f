"""Comparative prompting: class prompts corrected by how two confused classes differ (PC-CLIP, section 3.4 and A.2).

The authors take the three pairs of classes that are most confused on the test images themselves, and pairs of its own
for each encoder (`comparative_released`). By default the pairs are those most confused on a fifth of the images,
drawn by the seed, and only the other images count (`comparative`). A pair is only taken if the file of differences
describes it; where it lacks one of the authors' three, their protocol is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.benchmarks.benchmark import Scores
from components.benchmarks.encoding.context import BenchmarkContext
from components.benchmarks.image_sets.class_texts import Differences, class_differences
from components.benchmarks.protocols.zero_shot import (
    Pair,
    comparative_weights,
    confusion_matrix,
    held_out,
    most_confused,
    predicted,
    top_accuracy,
)
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

    def confused(self, among: set[Pair] | None = None) -> list[Pair]:
        """The pairs of classes that are most often taken for each other."""
        answers = predicted(self.images, self.weights)
        return most_confused(confusion_matrix(self.labels, answers, len(self.weights)), PAIRS, among)


def comparative_scores(
    context: BenchmarkContext, name: str, path: Path, classes: Sequence[str], plain: Classified
) -> Scores:
    """Accuracy at each alpha, by both ways of choosing pairs, in groups below the benchmark `name`.

    `top1_confused` is the accuracy on images of the chosen pairs alone (PC-CLIP, table 3).

    Raises:
        InputError: the file of differences is missing or damaged.
    """
    differences = class_differences(path, classes)
    if differences is None:
        return Scores({})
    described = {(min(pair), max(pair)) for pair in zip(differences.described, differences.other, strict=True)}
    aside = held_out(plain.labels, HELD_OUT, context.seed)
    scores = Scores({})
    pairs = plain.part(aside).confused(described)
    if pairs:
        _add(scores, context, f"{name}/comparative", plain.part(~aside), differences, pairs)
    pairs = plain.confused()
    if pairs and set(pairs) <= described:
        _add(scores, context, f"{name}/comparative_released", plain, differences, pairs)
    return scores


def _add(
    scores: Scores,
    context: BenchmarkContext,
    prefix: str,
    plain: Classified,
    differences: Differences,
    pairs: list[Pair],
) -> None:
    ends = zip(differences.described, differences.other, strict=True)
    used = [row for row, (one, two) in enumerate(ends) if (min(one, two), max(one, two)) in pairs]
    texts = context.texts([differences.texts[row] for row in used])
    confused = np.isin(plain.labels, sorted({number for pair in pairs for number in pair}))

    def report(group: str, weights: Features) -> None:
        right: Reals = top_accuracy(plain.images, weights, plain.labels)
        scores.values[f"{prefix}_{group}/top1"] = right
        if confused.any():
            scores.scalars[f"{prefix}_{group}/top1_confused"] = float(right[confused].mean())

    report("plain", plain.weights)
    for alpha in ALPHAS:
        described, other = differences.described[used], differences.other[used]
        report(f"alpha_{alpha}", comparative_weights(plain.weights, texts, described, other, alpha))
