"""Does a paraphrase retrieve the images that the query retrieves? (Cheng et al. 2024; ParaCLIP, section 3)

Values are reported over all queries, per tier of the paraphrase's hardest word, and per kind of held-out content.
"""

from __future__ import annotations

from components.core.compute.metrics import average_overlap, gold_ranks, hit_at_k, jaccard_similarity, top_k
from components.core.tables.records import PARAPHRASE_QUERIES
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import ProjectContext

NAME = "paraphrased_retrieval"
FILE = "paraphrase_queries.parquet"
QUERY_TOP, PARAPHRASE_TOP = f"{NAME}/query_top", f"{NAME}/paraphrase_top"
"""Names of the two rankings that the report's gallery shows."""


def score(context: ProjectContext) -> Scores:
    """AO@k and JS@k between the lists of query and paraphrase, and recall@k of the paraphrase's image."""
    return score_table(context, NAME, FILE)


def score_table(context: ProjectContext, name: str, file: str) -> Scores:
    """`score` of the table `file`; names of metrics and rankings begin with `name`."""
    table = context.read(PARAPHRASE_QUERIES, file)
    gold = context.rows(table["image_id"].to_pylist(), file)
    query = context.texts(table["query"].to_pylist())
    paraphrase = context.texts(table["paraphrase"].to_pylist())
    tops = [top_k(features, context.image_features, max(context.ks)) for features in (query, paraphrase)]
    ranks = gold_ranks(paraphrase, context.image_features, gold)
    overall = {f"ao_at_{k}": average_overlap(tops[0], tops[1], k) for k in context.ks}
    overall |= {f"js_at_{k}": jaccard_similarity(tops[0], tops[1], k) for k in context.ks}
    overall |= {f"paraphrase_recall_at_{k}": hit_at_k(ranks, k) for k in context.ks}
    scores = grouped(name, overall, gold, {kind: table[kind].to_pylist() for kind in ("tier", "held_out")})
    scores.rankings.update({f"{name}/query_top": tops[0], f"{name}/paraphrase_top": tops[1]})
    return scores


METRICS = (
    *metrics("the earlier image of the test split first, in both lists", "ao_at_k", "js_at_k"),
    *metrics("the earlier image of the test split first", "paraphrase_recall_at_k"),
)
BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE],
    METRICS,
    key_metrics=(f"{NAME}/ao_at_10", f"{NAME}/js_at_10", f"{NAME}/paraphrase_recall_at_10"),
)
