"""Zero-shot classification: the class whose prompt is most similar to the image (Radford et al. 2021, section 3.1).

Classes are the distinct labels of the table. `zero_shot/...` uses one prompt per class, `zero_shot/ensemble/...`
the renormalised mean of the features of all prompts. `zero_shot/semclip/top1_negated` uses the negated prompt, which
should not be nearest, and `delta` is the accuracy without minus with negation (SemCLIP, section 4, figure 2).
"""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import gold_ranks, hit_at_k
from components.core.tables.records import LABELS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.zero_shot import prompt_ensemble

FILE = "labels.parquet"
PROMPT = "a picture of a {label}"
ENSEMBLE = (PROMPT, "a photo of a {label}", "an image of one {label}", "a drawing of the {label}", "{label}")
NEGATED = "not a picture of a {label}"
DEPTHS = (1, 5)
_TIE = "the class that is first in alphabetical order"


def score(context: ProjectContext) -> Scores:
    """Top-1 and top-5 accuracy per image for both, and SemCLIP's top-1 accuracies."""
    table = context.read(LABELS, FILE)
    labels = table["label"].to_pylist()
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    images = context.image_features[gold]
    classes = sorted(set(labels))
    truth = np.array([classes.index(label) for label in labels], dtype=np.int64)
    texts = [template.format(label=label) for template in ENSEMBLE for label in classes]
    prompts = context.texts(texts).reshape(len(ENSEMBLE), len(classes), -1)
    scores = Scores({})
    for prefix, features in (("zero_shot", prompts[0]), ("zero_shot/ensemble", prompt_ensemble(prompts))):
        ranks = gold_ranks(images, features, truth)
        scores.update(grouped(prefix, {f"top{depth}": hit_at_k(ranks, depth) for depth in DEPTHS}, gold))
    negated = gold_ranks(images, context.texts([NEGATED.format(label=label) for label in classes]), truth)
    wrong = hit_at_k(negated, 1)
    delta = scores.values["zero_shot/top1"] - wrong
    scores.update(grouped("zero_shot/semclip", {"top1_negated": wrong, "delta": delta}, gold))
    return scores


BENCHMARK = on_test_split(
    "zero_shot",
    score,
    [FILE],
    (
        *metrics(_TIE, "top1", "top5", "delta"),
        *metrics(_TIE, "top1_negated", higher_is_better=False),
    ),
    ("zero_shot/top1",),
)
