"""Linear probes: logistic regression on the image tower's features of an image set (Radford et al. 2021, section 3.2).

`linear_probe_<set>_pc_clip` are those of PC-CLIP's table 16: 100 training images of each class, or all of a smaller
class, drawn by the seed, and the test images of `zero_shot_released`. The paper does not state how it fits its probe.
ImageNet-A and -R have no training images: half of each class, at most 100, drawn by the seed, fits the probe, and the
others test it.

`linear_probe_<set>_pc_clip_released` is the code's (github.com/dsam99/pc_clip, test_embeddings.py and data/dataset.py):
a linear layer on raw features of the tower. It learns from 100 times as many images as there are classes, whatever
their classes, in five trainings from different weights. The code takes 5 images per class, where the paper takes 100,
and sets no seed for them.

Sets are read as for zero-shot classification, with their training split. An encoder with a trained text tower only
has the probes of the encoder whose image tower it kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from components.core.compute.metrics import Features, Indices, finite
from components.core.system.errors import InputError
from components.data.test_sets.files import drawn
from components.evaluation.benchmarks.published.difference_classification import SEEDS
from components.evaluation.scoring.benchmark import Benchmark, Scores, metrics
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts.classes import HELD_OUT, held_out
from research.experiments.zero_shot_released import PC_CLIP_SETS
from research.image_sets.image_set import ImageSet, ImageSetFacts, image_sets
from research.image_sets.reading import pc_clip_images, read_image_set
from research.test_sets.image_sets import image_set_files

ITERATIONS = 1000
_FIRST = tuple(range(-6, 7, 2))
_FINEST = 1 / 8
RATE, EPOCHS, BATCH = 1e-3, 10, 32
"""Of the released linear layer: Adam's learning rate, passes over the images, images in a step."""
_PC_CLIP_IMAGES = 100
_HALVED = ("imagenet_a", "imagenet_r")


def score(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """Accuracy on the test split of the probe that was fitted to the training split."""
    train, test = read_image_set(context, facts, "train"), read_image_set(context, facts)
    return _probed(context, f"linear_probe_{facts.name}", train, test)


def score_pc_clip(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """The same with 100 training images of each class."""
    train, test = (pc_clip_images(context, facts, split) for split in ("train", "test"))
    rows = few_of_each(train.labels, _PC_CLIP_IMAGES, context.seed)
    return _probed(context, f"linear_probe_{facts.name}_pc_clip", train.of_rows(rows), test)


def score_released(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """Accuracy of the released linear layer, mean over its five trainings, with the standard error."""
    name = f"linear_probe_{facts.name}_pc_clip_released"
    whole, test = (pc_clip_images(context, facts, split) for split in ("train", "test"))
    train = whole.of_rows(drawn(len(whole.labels), _PC_CLIP_IMAGES * facts.classes, context.seed))
    shown, tested = (context.images(one.pictures, raw=True) for one in (train, test))
    runs = released_answers(shown, train.labels, tested, facts.classes, context.seed)
    right = (np.stack(runs) == test.labels).astype(np.float64)
    error = float(right.mean(axis=1).std() / np.sqrt(len(runs)))
    return Scores({f"{name}/top1": right.mean(axis=0)}, scalars={f"{name}/standard_error": error})


def score_halved(context: PublishedContext, facts: ImageSetFacts) -> Scores:
    """The same for a set without training images: half of each class fits the probe."""
    whole = read_image_set(context, facts)
    rows = few_of_each(whole.labels, _PC_CLIP_IMAGES, context.seed, share=0.5)
    others = np.setdiff1d(np.arange(len(whole.labels)), rows)
    return _probed(context, f"linear_probe_{facts.name}_pc_clip", whole.of_rows(rows), whole.of_rows(others))


def _probed(context: PublishedContext, prefix: str, train: ImageSet, test: ImageSet) -> Scores:
    if list(train.class_names or ()) != list(test.class_names or ()):
        raise InputError(f"{context.folder}: the splits name classes differently: store both in the same layout")
    if len(np.unique(train.labels)) < 2:
        raise InputError(f"{context.folder}: all training images are of one class: fetch the split again")
    answers = probe_answers(context.images(train.pictures), train.labels, context.images(test.pictures), context.seed)
    right = (answers == test.labels).astype(np.float64)
    recall = f"{prefix}/mean_per_class_recall"
    return Scores({f"{prefix}/top1": right, recall: right}, {recall: test.labels})


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


def _benchmark(
    facts: ImageSetFacts, ending: str, shown: str, protocol: str, citation: str, score: Callable[..., Scores]
) -> Benchmark[PublishedContext]:
    return Benchmark(
        name=f"linear_probe_{facts.name}{ending}",
        version=1,
        protocol=protocol,
        citation=citation,
        folder=facts.name,
        needs=image_set_files(facts, f"{facts.title}, {shown} images of {facts.classes} classes"),
        metrics=(
            *metrics("the class of the smaller number", "top1", "mean_per_class_recall"),
            *metrics("none: of the means of the trainings", "standard_error", higher_is_better=False),
        ),
        score=partial(score, facts=facts),
    )


_CLIP, _PC_CLIP = "CLIP (arXiv 2103.00020)", "PC-CLIP (arXiv 2409.09721)"
_CLIPS_TEXT = "CLIP's paper, A.3: logistic regression, strength chosen on held-out training images; unit features"
_HALF = "PC-CLIP's text, C.6: 100 images of each class, here at most half of it; fitted as CLIP's paper does"
_TEXT = "PC-CLIP's text, C.6: 100 training images of each class; fitted as CLIP's paper does"
_CODE = "PC-CLIP's released code with 100 images for each class: a linear layer by Adam, mean of 5 trainings"

BENCHMARKS = (
    *(
        _benchmark(facts, "", f"{facts.train[0]:,} training and {facts.test[0]:,} test", _CLIPS_TEXT, _CLIP, score)
        for facts in image_sets().values()
        if facts.train
    ),
    *(
        _benchmark(image_sets()[name], ending, "training and test", protocol, _PC_CLIP, score)
        for name in PC_CLIP_SETS
        for ending, protocol, score in (
            ("_pc_clip", _TEXT, score_pc_clip),
            ("_pc_clip_released", _CODE, score_released),
        )
    ),
    *(
        _benchmark(facts, "_pc_clip", f"{facts.test[0]:,} test", _HALF, _PC_CLIP, score_halved)
        for facts in (image_sets()[name] for name in _HALVED)
    ),
)
