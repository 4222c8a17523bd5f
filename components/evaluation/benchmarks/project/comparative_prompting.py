"""Comparative prompting: prompts corrected by differences of classes (PC-CLIP, section 3.4, equation 3, and table 3).

The prompt of a class A moves towards a similar class B's prompt less the text "how B differs from A". The paper takes
the three pairs that are most often confused on held-out images. Synthetic scenes have two pictures of a class, too few
to hold some out: every class is corrected by the class with the most similar prompt, which needs no pictures.
Differences are sentences as in the benchmark `differences`.
"""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import Features, Indices, top_k
from components.core.tables.records import LABELS
from components.data.world.description.difference_text import object_difference
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.benchmarks.project.zero_shot import FILE, PROMPT
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.zero_shot import comparative_weights, top_accuracy

NAME = "comparative_prompting"
ALPHA = 0.9
"""Weight of the original prompt; the paper's tables use it."""


def score(context: ProjectContext) -> Scores:
    """Top-1 accuracy of corrected prompts per image, and its gain over the plain prompts."""
    table = context.read(LABELS, FILE)
    labels = table["label"].to_pylist()
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    classes = sorted(set(labels))
    truth = np.array([classes.index(label) for label in labels], dtype=np.int64)
    images, prompts = context.image_features[gold], context.texts([PROMPT.format(label=label) for label in classes])
    nearest = most_similar(prompts)
    texts = context.texts(
        [object_difference(classes[other], name) for name, other in zip(classes, nearest, strict=True)]
    )
    corrected = comparative_weights(prompts, texts, nearest, np.arange(len(classes), dtype=np.int64), ALPHA)
    before, after = (top_accuracy(images, weights, truth) for weights in (prompts, corrected))
    return grouped(NAME, {"top1": after, "gain": after - before}, gold)


def most_similar(prompts: Features) -> Indices:
    """The other class with the most similar prompt `[classes, dim]`, the first of equal ones `[classes]`."""
    best = top_k(prompts, prompts, 2)
    return np.where(best[:, 0] == np.arange(len(prompts)), best[:, 1], best[:, 0])


BENCHMARK = on_test_split(NAME, score, [FILE], metrics("the class that is first in alphabetical order", "top1", "gain"))
