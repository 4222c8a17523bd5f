"""Query expansion: a baseline that improves queries instead of the encoder (Cheng et al. 2024, section 5.2, table 2).

`query_expansion` expands the queries and paraphrases of COCO-P, `query_expansion_coco` the captions of COCO's
Karpathy test split. A query's feature becomes the mean of its own and its expansions' (equation 5, K = 3 by appendix
B.4). Two sources are scored if their files exist: WordNet synonyms, and paraphrases by a language model, which stand
for the paper's Parrot: a table `query_paraphrases` (the first K samples) or a JSON object, text -> list of texts. Texts
without an expansion are searched unchanged; `expanded_share` is the share of texts with one. The stop words are
scikit-learn's, because the paper does not name a list.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from components.core.compute.metrics import Features, Reals, gold_ranks, hit_at_k
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.core.tables.records import QUERY_PARAPHRASES
from components.data.test_sets.readers.captions import COCO
from components.data.test_sets.readers.coco_p import PAIRS_FILE, VALIDATION, VALIDATION_FILE, read_query_pairs
from components.evaluation.benchmarks.published.coco_p import RANKED, REPORTED, gallery, gold_rows
from components.evaluation.scoring.benchmark import Benchmark, Scores, grouped, metrics
from components.evaluation.scoring.protocols.retrieval import (
    TIES,
    WAYS,
    averaged,
    paraphrase_agreement,
    synonym_expansions,
)
from components.evaluation.scoring.published_context import PublishedContext
from research.experiments.parts.wordnet import read_wordnet

NAME, ON_COCO = "query_expansion", "query_expansion_coco"
WORDNET, PARAPHRASES = "wordnet", "query_paraphrases.parquet"
COUNT, OTHER_FILE = "expansions", "paraphrases"
"""Options."""
RECALLED = 5
"""The depth that table 2 reports of COCO."""

TO_EXPAND = "queries"
"""Name, in `PublishedContext.lists`, of the texts that the task `query_paraphrase` reads."""

Expand = Callable[[str], list[str]]


def score(context: PublishedContext) -> Scores:
    """AO@k, JS@k and recall@k with expanded queries, by source of the expansions."""
    pairs = read_query_pairs(context)
    sources = _sources(context, [*pairs.queries, *pairs.paraphrases])
    names, images = gallery(context, (VALIDATION,))
    gold, depths = gold_rows(pairs, names), sorted({*context.ks, REPORTED})
    scores = Scores({})
    for source, expand in sources.items():
        queries, paraphrases = (_features(context, texts, expand) for texts in (pairs.queries, pairs.paraphrases))
        columns = paraphrase_agreement(queries, paraphrases, images, gold, depths)
        columns["expanded_share"] = np.array([bool(expand(text)) for text in pairs.queries], dtype=np.float64)
        scores.update(grouped(f"{NAME}/{source}", columns, gold))
    return scores


def score_coco(context: PublishedContext) -> Scores:
    """Recall@k of each caption's image with expanded captions, by source of the expansions."""
    captioned = COCO.read(context)
    sources = _sources(context, captioned.captions)
    images = context.image_files(COCO.pictures, captioned.images)
    values: dict[str, Reals] = {}
    for source, expand in sources.items():
        ranks = gold_ranks(_features(context, list(captioned.captions), expand), images, captioned.owners)
        for k in sorted({*context.ks, RECALLED}):
            values[f"{ON_COCO}/{source}/{WAYS[0]}/recall_at_{k}"] = hit_at_k(ranks, k)
        expanded = [bool(expand(text)) for text in captioned.captions]
        values[f"{ON_COCO}/{source}/expanded_share"] = np.array(expanded, dtype=np.float64)
    return Scores(values, pictures=dict.fromkeys(values, captioned.owners))


def _sources(context: PublishedContext, texts: Sequence[str]) -> dict[str, Expand]:
    """Name of each existing source -> function from one of `texts` to its expansions."""
    context.lists[TO_EXPAND] = [(text,) for text in dict.fromkeys(texts)]
    count = _count(context)
    sources: dict[str, Expand] = {}
    if (context.folder / WORDNET).exists():
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        synonyms = cache(read_wordnet(context.folder / WORDNET).synonyms)
        sources["wordnet"] = cache(
            lambda text: synonym_expansions(text, synonyms, ENGLISH_STOP_WORDS, count, context.seed)
        )
    path = Path(str(context.options[OTHER_FILE])) if OTHER_FILE in context.options else context.folder / PARAPHRASES
    if path.exists() or OTHER_FILE in context.options:
        expansions = read_expansions(path)
        sources["paraphrases"] = lambda text: expansions.get(_key(text), [])[:count]
    else:
        context.left_out.append(f"paraphrases: no {PARAPHRASES} and no --benchmark-option {OTHER_FILE}=<path>")
    if not sources:
        raise InputError(
            f"{context.folder} has neither {WORDNET}/ nor {PARAPHRASES}: put one there, or name a file of paraphrases "
            f"by --benchmark-option {OTHER_FILE}=<path>; `dvc repro validate@query_paraphrases` writes one"
        )
    if "wordnet" not in sources:
        context.left_out.append(f"wordnet: no folder {WORDNET}/")
    return sources


def _count(context: PublishedContext) -> int:
    chosen = context.options.get(COUNT, 3)
    if not str(chosen).isdecimal() or int(chosen) < 1:
        raise InputError(f"--benchmark-option {COUNT}={chosen}: give a number of expansions from 1")
    return int(chosen)


def read_expansions(path: Path) -> dict[str, list[str]]:
    """Text -> its paraphrases, lowest sample first, without repetition."""
    if path.suffix == ".json":
        return _read_json(path)
    table = QUERY_PARAPHRASES.read(path, ["query", "sample", "paraphrase"]).sort_by("sample")
    expansions: dict[str, list[str]] = defaultdict(list)
    for query, paraphrase in zip(table["query"].to_pylist(), table["paraphrase"].to_pylist(), strict=True):
        if paraphrase not in expansions[_key(query)]:
            expansions[_key(query)].append(paraphrase)
    return dict(expansions)


def _key(text: str) -> str:
    return " ".join(text.split())


def _read_json(path: Path) -> dict[str, list[str]]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is missing or damaged ({error}): name a JSON object, text -> list of texts") from None
    rows: Iterable[tuple[str, Any]] = content.items() if isinstance(content, dict) else [("", None)]
    for text, others in rows:
        if not isinstance(others, list) or not all(isinstance(other, str) for other in others):
            raise InputError(f"{path}: '{text[:40]}' has no list of texts: name a JSON object, text -> list of texts")
    return {_key(text): others for text, others in rows}


def _features(context: PublishedContext, texts: list[str], expand: Expand) -> Features:
    """Expanded unit features `[texts, dim]`."""
    groups = [[text, *expand(text)] for text in texts]
    owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return averaged(context.texts([text for group in groups for text in group]), owners, len(groups))


_SOURCES = (
    RequiredFile(WORDNET, "files of WordNet 3's dict/ folder: index.*, data.*, *.exc", "35 MB", "WordNet licence",
                 "wordnet.princeton.edu", optional=True),
    RequiredFile(PARAPHRASES, "query paraphrases by a language model", "1 MB", "that of the model's output",
                 "`dvc repro validate@query_paraphrases`", optional=True),
)  # fmt: skip
_DECLARED = partial(
    Benchmark[PublishedContext],
    protocol="the paper's text: mean of the query's and K = 3 expansions' features; draws of this project",
    citation="Adapting dual-encoder VLMs for paraphrased retrieval (arXiv 2405.03190), section 5.2",
    options={
        COUNT: "number of expansions of a text, 3 when not given",
        OTHER_FILE: f"a table of query paraphrases or a .json, text -> list of texts, instead of {PARAPHRASES}",
    },
)

BENCHMARKS = (
    _DECLARED(
        name=NAME,
        version=3,
        folder="coco_p",
        needs=(PAIRS_FILE, VALIDATION_FILE, *_SOURCES),
        metrics=(*RANKED, *metrics("none", "expanded_share")),
        score=score,
    ),
    _DECLARED(
        name=ON_COCO,
        version=2,
        folder="coco",
        needs=(*COCO.files, *_SOURCES),
        metrics=(*metrics(TIES, "recall_at_k"), *metrics("none", "expanded_share")),
        score=score_coco,
    ),
)
