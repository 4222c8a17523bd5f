"""Does a query with one typing error still retrieve its image? (LEAF: Abad Rocamora et al. 2025, arXiv 2506.03355)

An error is one character inserted, deleted or replaced: Levenshtein distance one. LEAF searches the error that moves a
text most, which costs hundreds of texts per query. Here every plain query gets a few random errors, the same for all
encoders. `worst` requires that all of them retrieve the image.
"""

from __future__ import annotations

import random
import string

import numpy as np

from components.core.compute.metrics import gold_ranks, hit_at_k
from components.core.tables.records import CAPTION_QUERIES
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.benchmarks.project.retrieval import FILE
from components.evaluation.scoring.benchmark import Scores, metrics
from components.evaluation.scoring.context import ProjectContext

NAME = "typos"
ERRORS = 3
"""Misspelt texts for each query."""


def score(context: ProjectContext) -> Scores:
    """Text-to-image recall@k of misspelt plain queries: the mean over a query's errors, and whether all of them hit."""
    table = context.read(CAPTION_QUERIES, FILE)
    plain = [row for row in table.to_pylist() if row["register"] == "plain"]
    gold = context.rows([row["image_id"] for row in plain], FILE)
    texts = [text for row in plain for text in with_typing_errors(row["text"], ERRORS)]
    ranks = gold_ranks(context.texts(texts), context.image_features, np.repeat(gold, ERRORS)).reshape(-1, ERRORS)
    hits = {k: hit_at_k(ranks, k) for k in context.ks}
    values = {f"{NAME}/t2i_recall_at_{k}": hit.mean(axis=1) for k, hit in hits.items()}
    values |= {f"{NAME}/worst_t2i_recall_at_{k}": hit.min(axis=1) for k, hit in hits.items()}
    return Scores(values, pictures=dict.fromkeys(values, gold))


def with_typing_errors(text: str, count: int) -> list[str]:
    """`count` different texts at Levenshtein distance one, deterministic for a text.

    Errors are at characters other than spaces, so that words change; new letters are a to z.

    Raises:
        ValueError: the text consists of spaces.
    """
    if not text.strip():
        raise ValueError("a text of spaces cannot have typing errors")
    rng = random.Random(f"typos-{text}")
    wrong: dict[str, None] = {}
    while len(wrong) < count:
        changed = _with_error(text, rng)
        if changed != text:
            wrong[changed] = None
    return list(wrong)


def _with_error(text: str, rng: random.Random) -> str:
    kind = rng.choice(("insert", "leave out", "replace"))
    place = rng.choice([place for place, character in enumerate(text) if not character.isspace()])
    letter = "" if kind == "leave out" else rng.choice(string.ascii_lowercase)
    return text[:place] + letter + text[place + (kind != "insert") :]


BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE],
    metrics("the earlier image of the test split first", "t2i_recall_at_k", "worst_t2i_recall_at_k"),
    key_metrics=(f"{NAME}/t2i_recall_at_5",),
)
