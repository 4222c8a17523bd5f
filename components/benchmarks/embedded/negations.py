"""Is a caption told from its negation, and do caption and paraphrase find its image? (SemCLIP, section 4; CC-Neg)

`composite` is SemCLIP's equation 8, whose clamp is of a mean: below an accuracy of one half over negations every query
counts 0 for its negation. Its mean is the published score; its interval takes the side of the clamp as given.
Values over negations are also given per cue.
"""

from __future__ import annotations

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.encoding.context import EmbeddedContext
from components.benchmarks.protocols.choices import original_over_negation, row_cosine
from components.benchmarks.scores import Columns, Metric, Scores
from components.core.metrics import Reals, gold_ranks, hit_at_k, strictly_greater
from components.core.records import NEGATION_QUERIES

NAME = "negations"
FILE = "negations.parquet"
_LOST = "a tie is a failure, as in SemCLIP's code; CC-Neg's own counts it right"


def score(context: EmbeddedContext) -> Scores:
    """Accuracies over negations, top-1 retrieval among all test images, and the composite of them per query."""
    table = context.read(NEGATION_QUERIES, FILE)
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    captions, negations, paraphrases = (
        context.texts(table[column].to_pylist()) for column in ("caption", "negation", "paraphrase")
    )
    over: dict[str, Reals] = {
        "original_over_negation": original_over_negation(context.image_features[gold], captions, negations),
        "paraphrase_over_negation": strictly_greater(
            row_cosine(captions, paraphrases), row_cosine(captions, negations)
        ),
    }
    found = {
        f"{name}_top1": hit_at_k(gold_ranks(texts, context.image_features, gold), 1)
        for name, texts in (("caption", captions), ("paraphrase", paraphrases))
    }
    composite = (found["caption_top1"] + found["paraphrase_top1"] + _rescaled(over["original_over_negation"])) / 3
    cues = np.array(table["cue"].to_pylist())

    def named(columns: dict[str, Columns]) -> dict[str, Columns]:
        named = {f"{NAME}/{name}": column for name, column in columns.items()}
        for cue in dict.fromkeys(cues.tolist()):
            named |= {f"{NAME}/cue_{cue}/{name}": columns[name][cues == cue] for name in over}
        return named

    overall = over | found | {"composite": composite}
    return Scores(named(overall), pictures=named(dict.fromkeys(overall, gold)))


def _rescaled(correct: Reals) -> Reals:
    """Values whose mean is max(0, 2 (accuracy - 1/2)) `[queries]`."""
    return 2 * correct - 1 if correct.mean() > 0.5 else np.zeros_like(correct)


BENCHMARK = Benchmark(
    name=NAME,
    version=1,
    needs=(Need(FILE),),
    metrics=(
        Metric("original_over_negation", higher_is_better=True, ties=_LOST),
        Metric("paraphrase_over_negation", higher_is_better=True, ties="a tie is a failure"),
        Metric("caption_top1", higher_is_better=True, ties="the earlier image of the test split first"),
        Metric("paraphrase_top1", higher_is_better=True, ties="the earlier image of the test split first"),
        Metric("composite", higher_is_better=True, ties="as in its parts"),
    ),
    score=score,
    key_metrics=(f"{NAME}/original_over_negation", f"{NAME}/composite"),
)
