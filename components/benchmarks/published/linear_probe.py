"""Linear probes: logistic regression on the image tower's features of an image set (Radford et al. 2021, section 3.2).

Sets are read as for zero-shot classification, with their training split. A text tower that was trained alone has the
probes of the encoder whose image tower it kept.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from components.benchmarks.benchmark import Metric, Scores
from components.benchmarks.encoding.context import BenchmarkContext
from components.benchmarks.image_sets.facts import ImageSetFacts, image_sets
from components.benchmarks.image_sets.reading import read_image_set
from components.benchmarks.protocols.linear_probe import probe_answers
from components.benchmarks.published.zero_shot import image_needs
from components.benchmarks.published_benchmark import Published
from components.core.errors import InputError

_TIE = "the class of the smaller number"


def score(context: BenchmarkContext, facts: ImageSetFacts) -> Scores:
    """Accuracy on the test split of the probe that was fitted to the training split.

    Raises:
        InputError: a split is missing or not as published, or the splits have other classes.
    """
    train, test = read_image_set(context, facts, "train"), read_image_set(context, facts)
    if list(train.class_names or ()) != list(test.class_names or ()):
        raise InputError(f"{context.folder}: the splits name classes differently: put both there in one layout")
    if len(np.unique(train.labels)) == 1:
        raise InputError(f"{context.folder}: all training images are of one class: fetch the split again")
    answers = probe_answers(context.images(train.pictures), train.labels, context.images(test.pictures), context.seed)
    right = (answers == test.labels).astype(np.float64)
    prefix = f"linear_probe_{facts.name}"
    recall = f"{prefix}/mean_per_class_recall"
    return Scores({f"{prefix}/top1": right, recall: right}, {recall: test.labels})


def _benchmark(facts: ImageSetFacts) -> Published:
    what = f"{facts.title}, {facts.train[0]:,} training and {facts.test[0]:,} test images of {facts.classes} classes"
    return Published(
        name=f"linear_probe_{facts.name}",
        version=1,
        protocol="CLIP's paper, A.3: logistic regression, strength chosen on held-out training images; unit features",
        citation="CLIP (arXiv 2103.00020)",
        folder=facts.name,
        needs=image_needs(facts, what),
        metrics=(
            Metric("top1", higher_is_better=True, ties=_TIE),
            Metric("mean_per_class_recall", higher_is_better=True, ties=_TIE),
        ),
        score=partial(score, facts=facts),
    )


BENCHMARKS = tuple(_benchmark(facts) for facts in image_sets().values() if facts.train)
