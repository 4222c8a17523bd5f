"""Query expansion on COCO-P: the baseline that improves no encoder but its queries (Cheng et al. 2024, section 5.2).

Queries and paraphrases are both expanded, and a text's feature becomes the mean of its own and its expansions'
(equation 5, K = 3 by appendix B.4). Two sources of expansions, each scored where its files are there: WordNet synonyms,
and paraphrases by a language model, which stand for the paper's Parrot. Texts without an expansion are searched as they
are; `expanded_share` says how many have one.

Paraphrases are a table of query paraphrases (`components.core.records.QUERY_PARAPHRASES`, the first K samples of each
query) or a JSON object, text -> list of texts. The stop words are scikit-learn's, for the paper does not name a list.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import numpy as np

from components.benchmarks.benchmark import Metric, Scores
from components.benchmarks.encoding.context import BenchmarkContext
from components.benchmarks.files.coco_paraphrases import VALIDATION, gallery, gold_rows, read_pairs
from components.benchmarks.files.wordnet import read_wordnet
from components.benchmarks.protocols.paraphrase_ranking import paraphrase_agreement
from components.benchmarks.protocols.query_expansion import averaged, synonym_expansions
from components.benchmarks.published.coco_p import METRICS, PAIRS_NEED, REPORTED, VALIDATION_NEED
from components.benchmarks.published_benchmark import Need, Published
from components.core.errors import InputError
from components.core.metrics import Features, Reals
from components.core.records import QUERY_PARAPHRASES

NAME = "query_expansion"
WORDNET, PARAPHRASES = "wordnet", "query_paraphrases.parquet"
COUNT, OTHER_FILE = "expansions", "paraphrases"
"""Options."""

Expand = Callable[[str], list[str]]


def score(context: BenchmarkContext) -> Scores:
    """AO@k, JS@k and recall@k with expanded queries, by source of the expansions."""
    sources = _sources(context)
    pairs = read_pairs(context)
    names, images = gallery(context, (VALIDATION,))
    gold, depths = gold_rows(pairs, names), sorted({*context.ks, REPORTED})
    values: dict[str, Reals] = {}
    for source, expand in sources.items():
        queries, paraphrases = (_features(context, texts, expand) for texts in (pairs.queries, pairs.paraphrases))
        found = paraphrase_agreement(queries, paraphrases, images, gold, depths)
        found["expanded_share"] = np.array([bool(expand(text)) for text in pairs.queries], dtype=np.float64)
        values |= {f"{NAME}/{source}/{metric}": column for metric, column in found.items()}
    return Scores(values, pictures=dict.fromkeys(values, gold))


def _sources(context: BenchmarkContext) -> dict[str, Expand]:
    """Name of each source that is there -> what gives a text its expansions."""
    count = _count(context)
    found: dict[str, Expand] = {}
    if (context.folder / WORDNET).exists():
        from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

        synonyms = cache(read_wordnet(context.folder / WORDNET).synonyms)
        found["wordnet"] = cache(
            partial(
                synonym_expansions, synonyms=synonyms, stop_words=ENGLISH_STOP_WORDS, count=count, seed=context.seed
            )
        )
    path = Path(str(context.options[OTHER_FILE])) if OTHER_FILE in context.options else context.folder / PARAPHRASES
    if path.exists() or OTHER_FILE in context.options:
        known = read_expansions(path)
        found["paraphrases"] = lambda text: known.get(text, [])[:count]
    if not found:
        raise InputError(
            f"{context.folder} has neither {WORDNET}/ nor {PARAPHRASES}: put one there, or name a file of paraphrases "
            f"by --option {OTHER_FILE}=<path>"
        )
    return found


def _count(context: BenchmarkContext) -> int:
    chosen = context.options.get(COUNT, 3)
    if not str(chosen).isdecimal() or int(chosen) < 1:
        raise InputError(f"--option {COUNT}={chosen}: give a number of expansions from 1")
    return int(chosen)


def read_expansions(path: Path) -> dict[str, list[str]]:
    """Text -> its paraphrases, those of the lowest sample first and none twice.

    Raises:
        InputError: the file is missing, damaged, or laid out otherwise.
    """
    if path.suffix == ".json":
        return _read_json(path)
    table = QUERY_PARAPHRASES.read(path, ["query", "sample", "paraphrase"]).sort_by("sample")
    found: dict[str, list[str]] = defaultdict(list)
    for query, paraphrase in zip(table["query"].to_pylist(), table["paraphrase"].to_pylist(), strict=True):
        if paraphrase not in found[query]:
            found[query].append(paraphrase)
    return dict(found)


def _read_json(path: Path) -> dict[str, list[str]]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is missing or damaged ({error}): name a JSON object, text -> list of texts") from None
    rows = content.items() if isinstance(content, dict) else [("", None)]
    for text, others in rows:
        if not isinstance(others, list) or not all(isinstance(other, str) for other in others):
            raise InputError(f"{path}: '{text[:40]}' has no list of texts: name a JSON object, text -> list of texts")
    return dict(rows)


def _features(context: BenchmarkContext, texts: list[str], expand: Expand) -> Features:
    """Expanded unit features `[texts, dim]`."""
    groups = [[text, *expand(text)] for text in texts]
    owners = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
    return averaged(context.texts([text for group in groups for text in group]), owners, len(groups))


BENCHMARKS = (
    Published(
        name=NAME,
        version=2,
        protocol="the paper's text: mean of the query's and K = 3 expansions' features; draws of this project",
        citation="Adapting dual-encoder VLMs for paraphrased retrieval (arXiv 2405.03190), section 5.2",
        folder="coco_p",
        needs=(
            PAIRS_NEED,
            VALIDATION_NEED,
            Need(
                WORDNET,
                "files of WordNet 3's dict/ folder: index.*, data.*, *.exc",
                "35 MB",
                "WordNet licence",
                "wordnet.princeton.edu",
                optional=True,
            ),
            Need(
                PARAPHRASES,
                "query paraphrases by a language model",
                "1 MB",
                "that of the model's output",
                "a run of this project",
                optional=True,
            ),
        ),
        metrics=(*METRICS, Metric("expanded_share", higher_is_better=True, ties="none")),
        score=score,
        options={
            COUNT: "number of expansions of a text, 3 when not given",
            OTHER_FILE: f"a table of query paraphrases or a .json, text -> list of texts, instead of {PARAPHRASES}",
        },
    ),
)
