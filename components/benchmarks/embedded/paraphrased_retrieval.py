"""Does a paraphrase find the images that the query finds? (Cheng et al. 2024; ParaCLIP, section 3 and appendix B)

Values are given over all queries, per tier of the paraphrase's hardest word, and per what training never saw.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.encoding.context import EmbeddedContext
from components.benchmarks.scores import Columns, Metric, Scores
from components.core.metrics import Reals, average_overlap, gold_ranks, hit_at_k, jaccard_similarity, top_k
from components.core.records import PARAPHRASE_QUERIES

NAME = "paraphrased_retrieval"
FILE = "paraphrase_queries.parquet"
QUERY_TOP, PARAPHRASE_TOP = f"{NAME}/query_top", f"{NAME}/paraphrase_top"
"""Names of the two rankings that the report's gallery shows."""


def score(context: EmbeddedContext) -> Scores:
    """AO@k and JS@k between the lists of query and paraphrase, and recall@k of the paraphrase's image."""
    table = context.read(PARAPHRASE_QUERIES, FILE)
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    query = context.texts(table["query"].to_pylist())
    paraphrase = context.texts(table["paraphrase"].to_pylist())
    tops = [top_k(features, context.image_features, max(context.ks)) for features in (query, paraphrase)]
    ranks = gold_ranks(paraphrase, context.image_features, gold)
    overall: dict[str, Reals] = {}
    overall |= {f"ao_at_{k}": average_overlap(tops[0], tops[1], k) for k in context.ks}
    overall |= {f"js_at_{k}": jaccard_similarity(tops[0], tops[1], k) for k in context.ks}
    overall |= {f"paraphrase_recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}

    def named(columns: dict[str, Columns]) -> dict[str, Columns]:
        found = {f"{NAME}/{metric}": column for metric, column in columns.items()}
        for prefix in ("tier", "held_out"):
            found |= _grouped(prefix, np.array(table[prefix].to_pylist()), columns)
        return found

    rankings = {QUERY_TOP: tops[0], PARAPHRASE_TOP: tops[1]}
    return Scores(named(overall), rankings=rankings, pictures=named(dict.fromkeys(overall, gold)))


def _grouped(prefix: str, groups: npt.NDArray[np.str_], overall: dict[str, Columns]) -> dict[str, Columns]:
    """The values of each group's queries, groups in the order in which the table first names them."""
    return {
        f"{NAME}/{prefix}_{group}/{metric}": found[groups == group]
        for group in dict.fromkeys(groups.tolist())
        for metric, found in overall.items()
    }


BENCHMARK = Benchmark(
    name=NAME,
    version=1,
    needs=(Need(FILE),),
    metrics=(
        Metric("ao_at_k", higher_is_better=True, ties="the earlier image of the test split first, in both lists"),
        Metric("js_at_k", higher_is_better=True, ties="the earlier image of the test split first, in both lists"),
        Metric("paraphrase_recall_at_k", higher_is_better=True, ties="the earlier image of the test split first"),
    ),
    score=score,
    key_metrics=(f"{NAME}/ao_at_10", f"{NAME}/js_at_10", f"{NAME}/paraphrase_recall_at_10"),
)
