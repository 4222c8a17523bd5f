"""Do texts retrieve their images, and do paraphrases and misspelt texts retrieve the same ones?"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence

import numpy as np

from components.core.compute.metrics import (
    Indices,
    Reals,
    average_overlap,
    gold_ranks,
    hit_at_k,
    jaccard_similarity,
    rank_correlation,
    shared_of_top,
    top_k,
)
from components.core.tables.records import CAPTION_QUERIES, PARAPHRASE_QUERIES
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import QUERIES_FILE, ProjectContext

CAPTIONS_FILE, WRITTEN_FILE = "caption_queries.parquet", "written_paraphrases.parquet"
PARAPHRASED = "paraphrased_retrieval"
QUERY_TOP, PARAPHRASE_TOP = f"{PARAPHRASED}/query_top", f"{PARAPHRASED}/paraphrase_top"
"""Names of the two rankings that the report's gallery shows."""
ERRORS = 3
"""Misspelt texts for each query."""


def score_paraphrased(context: ProjectContext) -> Scores:
    """Does a paraphrase retrieve the images that the query retrieves? (Cheng et al. 2024; ParaCLIP, section 3)

    AO@k and JS@k between the lists of query and paraphrase, and recall@k of the paraphrase's image, over all queries,
    per tier of the paraphrase's hardest word, and per kind of held-out content.
    """
    return _paraphrased(context, PARAPHRASED, QUERIES_FILE)


def score_written(context: ProjectContext) -> Scores:
    """`paraphrased_retrieval` of queries by a language model, for data that has paraphrases by people as well."""
    return _paraphrased(context, "written_paraphrases", WRITTEN_FILE)


def _paraphrased(context: ProjectContext, name: str, file: str) -> Scores:
    """Agreement of the two lists in the table `file`; names of metrics and rankings begin with `name`."""
    table, gold = context.read_shown(PARAPHRASE_QUERIES, file)
    query, paraphrase = context.columns(table, "query", "paraphrase")
    tops = [top_k(features, context.image_features, max(context.ks)) for features in (query, paraphrase)]
    ranks = gold_ranks(paraphrase, context.image_features, gold)
    overall = {f"ao_at_{k}": average_overlap(tops[0], tops[1], k) for k in context.ks}
    overall |= {f"js_at_{k}": jaccard_similarity(tops[0], tops[1], k) for k in context.ks}
    overall |= {f"paraphrase_recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
    scores = grouped(name, overall, gold, {kind: table[kind].to_pylist() for kind in ("tier", "held_out")})
    scores.rankings.update({f"{name}/query_top": tops[0], f"{name}/paraphrase_top": tops[1]})
    return scores


def score_stability(context: ProjectContext) -> Scores:
    """Does a paraphrase rank the whole gallery as the query does? (PRSM: Schlegel et al., MMM 2026, arXiv 2511.11141)

    PRSM has two sides: Spearman's correlation of two whole rankings (global) and the shared part of their top k
    (local). The paper scores counterfactual portraits, publishes no code and does not state how it averages over
    several paraphrases of one query; here each pair of query and paraphrase is a row, and rows have equal weight.
    Values are also reported per tier of the hardest word.
    """
    table, gold = context.read_shown(PARAPHRASE_QUERIES, QUERIES_FILE)
    query, paraphrase = context.columns(table, "query", "paraphrase")
    tops = [top_k(features, context.image_features, max(context.ks)) for features in (query, paraphrase)]
    overall = {"rank_correlation": rank_correlation(query, paraphrase, context.image_features)}
    overall |= {f"overlap_at_{k}": shared_of_top(tops[0], tops[1], k) for k in context.ks}
    return grouped("ranking_stability", overall, gold, {"tier": table["tier"].to_pylist()})


def score_retrieval(context: ProjectContext) -> Scores:
    """Recall of texts to images and back, per register: `retrieval/...` is `plain`, else `retrieval_<register>/...`."""
    table, gold = context.read_shown(CAPTION_QUERIES, CAPTIONS_FILE)
    texts, registers = table["text"].to_pylist(), np.array(table["register"].to_pylist())
    values: dict[str, Reals] = {}
    pictures: dict[str, Indices] = {}
    for register in dict.fromkeys(registers.tolist()):
        chosen = np.flatnonzero(registers == register)
        prefix = "retrieval" if register == "plain" else f"retrieval_{register}"
        for direction, ranks in _both_ways(context, [texts[row] for row in chosen], gold[chosen]).items():
            values |= {f"{prefix}/{direction}_recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
        pictures |= {f"{prefix}/t2i_recall_at_{k}": gold[chosen] for k in context.ks}
    return Scores(values, pictures=pictures)


def _both_ways(context: ProjectContext, texts: Sequence[str], gold: Indices) -> dict[str, Indices]:
    """Rank of each text's image among the images, and of each image's best text among the texts."""
    features = context.texts(texts)
    per_text = gold_ranks(context.image_features[gold], features, np.arange(len(texts)))
    images, image_of_text = np.unique(gold, return_inverse=True)
    best = np.full(len(images), len(texts), dtype=np.int64)
    np.minimum.at(best, image_of_text, per_text)
    return {"t2i": gold_ranks(features, context.image_features, gold), "i2t": best}


def score_typos(context: ProjectContext) -> Scores:
    """Does a query with one typing error still retrieve its image? (LEAF: Abad Rocamora et al. 2025, arXiv 2506.03355)

    An error is one character inserted, deleted or replaced: Levenshtein distance one. LEAF searches the error that
    moves a text most, which costs hundreds of texts per query. Here every plain query gets a few random errors, the
    same for all encoders. Recall is the mean over a query's errors; `worst` requires that all of them retrieve the
    image.
    """
    table = context.read(CAPTION_QUERIES, CAPTIONS_FILE)
    plain = [row for row in table.to_pylist() if row["register"] == "plain"]
    gold = context.rows([row["image_id"] for row in plain], CAPTIONS_FILE)
    texts = [text for row in plain for text in with_typing_errors(row["text"], ERRORS)]
    ranks = gold_ranks(context.texts(texts), context.image_features, np.repeat(gold, ERRORS)).reshape(-1, ERRORS)
    hits = {k: hit_at_k(ranks, k) for k in context.ks}
    values = {f"typos/t2i_recall_at_{k}": hit.mean(axis=1) for k, hit in hits.items()}
    values |= {f"typos/worst_t2i_recall_at_{k}": hit.min(axis=1) for k, hit in hits.items()}
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
        kind = rng.choice(("insert", "leave out", "replace"))
        place = rng.choice([place for place, character in enumerate(text) if not character.isspace()])
        letter = "" if kind == "leave out" else rng.choice(string.ascii_lowercase)
        changed = text[:place] + letter + text[place + (kind != "insert") :]
        if changed != text:
            wrong[changed] = None
    return list(wrong)


_FIRST = "the earlier image of the test split first"
_AGREEMENT = (*metrics(f"{_FIRST}, in both lists", "ao_at_k", "js_at_k"), *metrics(_FIRST, "paraphrase_recall_at_k"))
TABLE_BENCHMARKS = (
    on_test_split(
        name="paraphrased_retrieval",
        score=score_paraphrased,
        files=[QUERIES_FILE],
        metrics=_AGREEMENT,
        key_metrics=tuple(f"{PARAPHRASED}/{name}_at_10" for name in ("ao", "js", "paraphrase_recall")),
    ),
    on_test_split(
        name="written_paraphrases",
        score=score_written,
        files=[WRITTEN_FILE],
        metrics=_AGREEMENT,
        key_metrics=("written_paraphrases/ao_at_10",),
    ),
    on_test_split(
        name="ranking_stability",
        score=score_stability,
        files=[QUERIES_FILE],
        metrics=(
            *metrics("equally similar images share their mean rank", "rank_correlation"),
            *metrics(f"{_FIRST}, in both lists", "overlap_at_k"),
        ),
        key_metrics=("ranking_stability/rank_correlation",),
    ),
    on_test_split(
        name="retrieval",
        score=score_retrieval,
        files=[CAPTIONS_FILE],
        metrics=(
            *metrics(_FIRST, "t2i_recall_at_k"),
            *metrics("the earlier text of the table first", "i2t_recall_at_k"),
        ),
        key_metrics=(
            "retrieval/t2i_recall_at_1",
            "retrieval/t2i_recall_at_5",
            "retrieval/i2t_recall_at_5",
            "retrieval_alt_text/t2i_recall_at_5",
        ),
    ),
    on_test_split(
        name="typos",
        score=score_typos,
        files=[CAPTIONS_FILE],
        metrics=metrics(_FIRST, "t2i_recall_at_k", "worst_t2i_recall_at_k"),
        key_metrics=("typos/t2i_recall_at_5",),
    ),
)
