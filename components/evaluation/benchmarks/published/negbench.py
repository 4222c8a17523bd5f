"""NegBench: pictures by captions with "no", and a choice of four captions (Alhamoud et al. 2025, arXiv 2501.09425).

Rules are those of the released code (github.com/m1k2zoo/negbench) after its fix of March 2025 (README, changelog):
features are normalised before the product in multiple-choice questions. Figure 4 of the preprint is older; corrected
values are in its results/mcq/: OpenAI's CLIP has 39.3 on COCO and 38.7 on VOC2007. Its default is mixed precision.

Questions: `argmax` over the cosines of a picture with four captions; chance is 25. The group `kind_...` is whether the
right caption affirms, negates, or does both. Retrieval: recall@k of each caption's picture among 5,000, chance is
k / 5,000; `negated` captions have a negation added, so `negated/recall_at_5` is the paper's R-Neg@5. Not here: MSR-VTT,
CheXpert, and the synthetic set, of which only texts are published.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from components.core.compute.metrics import gold_ranks, hit_at_k
from components.data.test_sets.readers import negbench as reader
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.choices import group_numbers, row_cosine
from components.evaluation.scoring.published_context import PublishedContext


def score_questions(name: str, context: PublishedContext) -> Scores:
    """Share of questions whose right caption is the most similar one, also by its kind."""
    rows = reader.read_questions(context, name)
    names = [row["image"] for row in rows]
    images = context.image_files(reader.PICTURES[name], names)
    cosines = np.stack([row_cosine(images, texts) for texts in context.columns(rows, *reader.OPTIONS)])
    right = cosines.argmax(axis=0) == [row["answer"] for row in rows]
    found = {"accuracy": right.astype(np.float64)}
    return grouped(name, found, group_numbers(names), {"kind": [row["kind"] for row in rows]})


def score_retrieval(context: PublishedContext) -> Scores:
    """Recall@k of pictures by plain and by negated captions."""
    scores = Scores({})
    for kind in reader.CAPTIONS:
        names, captions, owners = reader.read_captions(context, kind)
        images = context.image_files(reader.PICTURES[reader.RETRIEVAL], names)
        ranks = gold_ranks(context.texts(captions), images, owners)
        # The released code has depths 1 and 5.
        found = {f"recall_at_{k}": hit_at_k(ranks, k) for k in sorted({*context.ks, 1, 5})}
        scores.update(grouped(f"{reader.RETRIEVAL}/{kind}", found, owners))
    return scores


_SCORES = {name: partial(score_questions, name) for name in reader.QUESTIONS} | {reader.RETRIEVAL: score_retrieval}
BENCHMARKS = tuple(
    Benchmark(
        name=name,
        version=1,
        protocol="released code since 2025-03: unit features, four captions or recall from text to image",
        citation="Vision-language models do not understand negation (arXiv 2501.09425)",
        folder=reader.FOLDER,
        needs=reader.FILES[name],
        metrics=metrics("the earlier caption or row of the table first", "accuracy", "recall_at_k"),
        score=score,
    )
    for name, score in _SCORES.items()
)
