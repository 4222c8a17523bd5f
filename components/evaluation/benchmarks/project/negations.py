"""Is a caption distinguished from its negation, and do caption and paraphrase retrieve its image? (SemCLIP, CC-Neg)

`composite` is SemCLIP's equation 8 (section 4), which clamps a mean: below an accuracy of one half over negations every
query counts 0 for its negation. Its mean is the published score; its interval treats the side of the clamp as fixed.
Values over negations are also reported per cue.
"""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import Reals, gold_ranks, hit_at_k, strictly_greater
from components.core.tables.records import NEGATION_QUERIES
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.choices import original_over_negation, row_cosine

NAME = "negations"
FILE = "negations.parquet"


def score(context: ProjectContext) -> Scores:
    """Accuracies over negations, top-1 retrieval among all test images, and the composite of them per query."""
    table = context.read(NEGATION_QUERIES, FILE)
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    captions, negations, paraphrases = context.columns(table, "caption", "negation", "paraphrase")
    over: dict[str, Reals] = {
        "original_over_negation": original_over_negation(context.image_features[gold], captions, negations),
        "paraphrase_over_negation": strictly_greater(
            row_cosine(captions, paraphrases), row_cosine(captions, negations)
        ),
    }
    top = {
        f"{name}_top1": hit_at_k(gold_ranks(texts, context.image_features, gold), 1)
        for name, texts in (("caption", captions), ("paraphrase", paraphrases))
    }
    composite = (top["caption_top1"] + top["paraphrase_top1"] + _rescaled(over["original_over_negation"])) / 3
    overall = over | top | {"composite": composite}
    return grouped(NAME, overall, gold, {"cue": table["cue"].to_pylist()}, within=over)


def _rescaled(correct: Reals) -> Reals:
    """Values whose mean is max(0, 2 (accuracy - 1/2)) `[queries]`."""
    return 2 * correct - 1 if correct.mean() > 0.5 else np.zeros_like(correct)


BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE],
    (
        *metrics("a tie is a failure, as in SemCLIP's code; CC-Neg's own counts it right", "original_over_negation"),
        *metrics("a tie is a failure", "paraphrase_over_negation"),
        *metrics("the earlier image of the test split first", "caption_top1", "paraphrase_top1"),
        *metrics("as in its parts", "composite"),
    ),
    key_metrics=(f"{NAME}/original_over_negation", f"{NAME}/composite"),
)
