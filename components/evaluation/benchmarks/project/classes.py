"""Which class does a picture show? Plain, averaged, negated and corrected prompts."""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import Indices, gold_ranks, hit_at_k, top_k
from components.core.tables.records import LABELS
from components.data.world.difference_text import object_difference
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.zero_shot import comparative_weights, prompt_ensemble, top_accuracy

FILE = "labels.parquet"
PROMPT = "a picture of a {label}"
ENSEMBLE = (PROMPT, "a photo of a {label}", "an image of one {label}", "a drawing of the {label}", "{label}")
NEGATED = "not a picture of a {label}"
DEPTHS = (1, 5)
ALPHA = 0.9
"""Weight of the original prompt in comparative prompting; the paper's tables use it."""
_TIE = "the class that is first in alphabetical order"


def score_zero_shot(context: ProjectContext) -> Scores:
    """Zero-shot classification: the class whose prompt is most similar to the image (Radford et al. 2021, section 3.1).

    Classes are the distinct labels of the table. `zero_shot/...` uses one prompt per class, `zero_shot/ensemble/...`
    the renormalised mean of the features of all prompts. `zero_shot/semclip/top1_negated` uses the negated prompt,
    which should not be nearest, and `delta` is the accuracy without minus with negation (SemCLIP, section 4, figure 2).
    """
    gold, classes, truth = _labelled(context)
    images = context.image_features[gold]
    texts = [template.format(label=label) for template in ENSEMBLE for label in classes]
    prompts = context.texts(texts).reshape(len(ENSEMBLE), len(classes), -1)
    scores = Scores({})
    for prefix, features in (("zero_shot", prompts[0]), ("zero_shot/ensemble", prompt_ensemble(prompts))):
        ranks = gold_ranks(images, features, truth)
        scores.update(grouped(prefix, {f"top{depth}": hit_at_k(ranks, depth) for depth in DEPTHS}, gold))
    wrong = top_accuracy(images, context.texts([NEGATED.format(label=label) for label in classes]), truth)
    delta = scores.values["zero_shot/top1"] - wrong
    scores.update(grouped("zero_shot/semclip", {"top1_negated": wrong, "delta": delta}, gold))
    return scores


def score_comparative(context: ProjectContext) -> Scores:
    """Comparative prompting: prompts corrected by differences of classes (PC-CLIP, section 3.4, equation 3, and
    table 3).

    The prompt of a class A moves towards a similar class B's prompt less the text "how B differs from A". The paper
    takes the three pairs that are most often confused on held-out images. Synthetic scenes have two pictures of a
    class, too few to hold some out: every class is corrected by the class with the most similar prompt, which needs no
    pictures. Differences are sentences as in the benchmark `differences`. `gain` is over the plain prompts.
    """
    gold, classes, truth = _labelled(context)
    images, prompts = context.image_features[gold], context.texts([PROMPT.format(label=label) for label in classes])
    # Of equal prompts the first; the class itself may be the best or the second of its own.
    best = top_k(prompts, prompts, 2)
    nearest = np.where(best[:, 0] == np.arange(len(prompts)), best[:, 1], best[:, 0])
    texts = context.texts(
        [object_difference(classes[other], name) for name, other in zip(classes, nearest, strict=True)]
    )
    corrected = comparative_weights(prompts, texts, nearest, np.arange(len(classes), dtype=np.int64), ALPHA)
    before, after = (top_accuracy(images, weights, truth) for weights in (prompts, corrected))
    return grouped("comparative_prompting", {"top1": after, "gain": after - before}, gold)


def _labelled(context: ProjectContext) -> tuple[Indices, list[str], Indices]:
    """Gallery row of each labelled picture `[pictures]`, all classes, and each picture's class `[pictures]`."""
    table, gold = context.read_shown(LABELS, FILE)
    labels = table["label"].to_pylist()
    classes = sorted(set(labels))
    return gold, classes, np.array([classes.index(label) for label in labels], dtype=np.int64)


TABLE_BENCHMARKS = (
    on_test_split(
        name="zero_shot",
        score=score_zero_shot,
        files=[FILE],
        metrics=(*metrics(_TIE, "top1", "top5", "delta"), *metrics(_TIE, "top1_negated", higher_is_better=False)),
        key_metrics=("zero_shot/top1",),
    ),
    on_test_split(
        name="comparative_prompting", score=score_comparative, files=[FILE], metrics=metrics(_TIE, "top1", "gain")
    ),
)
