"""Does a paraphrase rank the whole gallery as the query does? (PRSM: Schlegel et al., MMM 2026, arXiv 2511.11141)

PRSM has two sides: Spearman's correlation of two whole rankings (global) and the shared part of their top k (local).
The paper scores counterfactual portraits, publishes no code and does not state how it averages over several paraphrases
of one query; here each pair of query and paraphrase is a row, and rows have equal weight.
"""

from __future__ import annotations

from components.core.compute.metrics import rank_correlation, shared_of_top, top_k
from components.core.tables.records import PARAPHRASE_QUERIES
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import QUERIES_FILE, ProjectContext

NAME = "ranking_stability"


def score(context: ProjectContext) -> Scores:
    """Rank correlation over the gallery and overlap@k of query and paraphrase, also per tier of the hardest word."""
    table = context.read(PARAPHRASE_QUERIES, QUERIES_FILE)
    gold = context.rows(table["image_id"].to_pylist(), QUERIES_FILE)
    query, paraphrase = context.columns(table, "query", "paraphrase")
    tops = [top_k(features, context.image_features, max(context.ks)) for features in (query, paraphrase)]
    overall = {"rank_correlation": rank_correlation(query, paraphrase, context.image_features)}
    overall |= {f"overlap_at_{k}": shared_of_top(tops[0], tops[1], k) for k in context.ks}
    return grouped(NAME, overall, gold, {"tier": table["tier"].to_pylist()})


BENCHMARK = on_test_split(
    NAME,
    score,
    [QUERIES_FILE],
    (
        *metrics("equally similar images share their mean rank", "rank_correlation"),
        *metrics("the earlier image of the test split first, in both lists", "overlap_at_k"),
    ),
    key_metrics=(f"{NAME}/rank_correlation",),
)
