"""Recall of texts to images and back, per register: `retrieval/...` is `plain`, else `retrieval_<register>/...`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.core.compute.metrics import Indices, Reals, gold_ranks, hit_at_k
from components.core.tables.records import CAPTION_QUERIES
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, metrics
from components.evaluation.scoring.context import ProjectContext

FILE = "caption_queries.parquet"


def score(context: ProjectContext) -> Scores:
    """Recall@k in both directions for every register of the table."""
    table = context.read(CAPTION_QUERIES, FILE)
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    texts, registers = table["text"].to_pylist(), np.array(table["register"].to_pylist())
    values: dict[str, Reals] = {}
    pictures: dict[str, Indices] = {}
    for register in dict.fromkeys(registers.tolist()):
        chosen = np.flatnonzero(registers == register)
        prefix = "retrieval" if register == "plain" else f"retrieval_{register}"
        for direction, ranks in _ranks(context, [texts[row] for row in chosen], gold[chosen]).items():
            values |= {f"{prefix}/{direction}_recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
        pictures |= {f"{prefix}/t2i_recall_at_{k}": gold[chosen] for k in context.ks}
    return Scores(values, pictures=pictures)


def _ranks(context: ProjectContext, texts: Sequence[str], gold: Indices) -> dict[str, Indices]:
    """Rank of each text's image among the images, and of each image's best text among the texts."""
    features = context.texts(texts)
    per_text = gold_ranks(context.image_features[gold], features, np.arange(len(texts)))
    images, image_of_text = np.unique(gold, return_inverse=True)
    best = np.full(len(images), len(texts), dtype=np.int64)
    np.minimum.at(best, image_of_text, per_text)
    return {"t2i": gold_ranks(features, context.image_features, gold), "i2t": best}


BENCHMARK = on_test_split(
    "retrieval",
    score,
    [FILE],
    (
        *metrics("the earlier image of the test split first", "t2i_recall_at_k"),
        *metrics("the earlier text of the table first", "i2t_recall_at_k"),
    ),
    key_metrics=(
        "retrieval/t2i_recall_at_1",
        "retrieval/t2i_recall_at_5",
        "retrieval/i2t_recall_at_5",
        "retrieval_alt_text/t2i_recall_at_5",
    ),
)
