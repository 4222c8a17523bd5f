"""Are two sentences as similar as their meanings? (semantic textual similarity, as in ParaCLIP's table 1)

Spearman's correlation of the cosine of two sentences with the share of facts that they have in common, over all pairs
and per tier of the hardest word of either. STS has human scores; synthetic scenes have facts: objects, their sizes,
place, count and the background.
"""

from __future__ import annotations

import numpy as np

from components.core.tables.records import TEXT_PAIRS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Correlation, Scores, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.retrieval import pair_cosines

NAME = "text_similarity"
FILE = "text_pairs.parquet"


def score(context: ProjectContext) -> Scores:
    """The correlation over all pairs and per tier; pairs are of different scenes and so independent."""
    table = context.read(TEXT_PAIRS, FILE)
    first, second = context.columns(table, "sentence", "other_sentence")
    cosines, gold = pair_cosines(first, second), table["shared"].to_numpy().astype(np.float64)
    tiers = np.array(table["tier"].to_pylist())
    chosen = {"": np.ones(len(gold), dtype=np.bool_)} | {
        f"tier_{tier}/": tiers == tier for tier in dict.fromkeys(tiers)
    }
    columns = {group: Correlation("spearman", gold[rows], cosines[rows]) for group, rows in chosen.items()}
    return Scores({}, correlations={f"{NAME}/{group}spearman": column for group, column in columns.items()})


BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE],
    metrics("similarities equal to six decimals share the mean of their ranks", "spearman"),
    key_metrics=(f"{NAME}/spearman",),
)
