"""Comparative prompting: classes told apart by how they differ (PC-CLIP, section 3.4, equation 3, and table 3).

The prompt of a class A moves to what a similar class B's prompt less the text "how B differs from A" says. The paper
takes the three pairs that are most often confused on images that then do not count. Of a thing this world has two
pictures, too few to set some aside: every class is corrected by the class whose prompt is most similar to its own,
which is known without pictures. Differences are sentences as in the benchmark `differences`.
"""

from __future__ import annotations

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.embedded.zero_shot import FILE, PROMPT
from components.benchmarks.encoding.context import EmbeddedContext
from components.benchmarks.protocols.zero_shot import comparative_weights, top_accuracy
from components.benchmarks.scores import Scores, grouped, metrics
from components.core.metrics import Features, Indices, top_k
from components.core.records import LABELS
from components.data.world.description.difference_text import object_difference

NAME = "comparative_prompting"
ALPHA = 0.9
"""How much of a prompt stays; the paper's tables are of it."""


def score(context: EmbeddedContext) -> Scores:
    """Top-1 accuracy of corrected prompts per image, and by how much it is higher than that of the prompts alone."""
    table = context.read(LABELS, FILE)
    labels = table["label"].to_pylist()
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    classes = sorted(set(labels))
    truth = np.array([classes.index(label) for label in labels], dtype=np.int64)
    images, prompts = context.image_features[gold], context.texts([PROMPT.format(label=label) for label in classes])
    nearest = most_similar(prompts)
    texts = context.texts([object_difference(classes[other], own) for own, other in zip(classes, nearest, strict=True)])
    corrected = comparative_weights(prompts, texts, nearest, np.arange(len(classes), dtype=np.int64), ALPHA)
    plain, found = (top_accuracy(images, weights, truth) for weights in (prompts, corrected))
    return grouped(NAME, {"top1": found, "gain": found - plain}, gold)


def most_similar(prompts: Features) -> Indices:
    """The other class with the most similar prompt, of equal ones the first `[classes]`.

    Args:
        prompts: unit features of two classes or more `[classes, dim]`.
    """
    best = top_k(prompts, prompts, 2)
    own = np.arange(len(prompts))
    return np.where(best[:, 0] == own, best[:, 1], best[:, 0])


BENCHMARK = Benchmark(
    name=NAME,
    version=1,
    needs=(Need(FILE),),
    metrics=metrics("the class that is first in alphabetical order", "top1", "gain"),
    score=score,
)
