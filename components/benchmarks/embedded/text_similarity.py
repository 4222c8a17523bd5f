"""Does the text tower know how alike two sentences are? (STS: ParaCLIP, table 1; Cheng et al. 2024, table 1c)

Raters of STS give a number between 0 and 5; here it is the share of facts that the sentences' scenes have in common.
The second sentence is a paraphrase in other words, so that words in common alone do not tell.
"""

from __future__ import annotations

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.encoding.context import EmbeddedContext
from components.benchmarks.protocols.choices import row_cosine
from components.benchmarks.scores import Correlation, Scores, metrics
from components.core.records import TEXT_SIMILARITIES

NAME = "text_similarity"
FILE = "text_similarities.parquet"


def score(context: EmbeddedContext) -> Scores:
    """Spearman's correlation of cosines and shares of common facts."""
    table = context.read(TEXT_SIMILARITIES, FILE)
    first, second = (context.texts(table[column].to_pylist()) for column in ("query", "paraphrase"))
    gold = np.asarray(table["similarity"].to_numpy(), dtype=np.float64)
    found = Correlation("spearman", gold, row_cosine(first, second).astype(np.float64))
    return Scores({}, correlations={f"{NAME}/spearman": found})


BENCHMARK = Benchmark(
    name=NAME,
    version=1,
    needs=(Need(FILE),),
    metrics=metrics("equal similarities share the mean of their ranks", "spearman"),
    score=score,
    key_metrics=(f"{NAME}/spearman",),
)
