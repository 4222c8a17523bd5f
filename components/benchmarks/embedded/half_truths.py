"""Does a false thing said in addition make a caption less similar to its image? (Kargi et al. 2026, arXiv 2602.23906)

Chance is one half for `accuracy` and one sixth for `ordered_accuracy`. An encoder that takes every longer text for the
worse one has the first right; the second, which also has a longer truth, it has not. Values are also given per kind of
thing said.
"""

from __future__ import annotations

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.encoding.context import EmbeddedContext
from components.benchmarks.protocols.choices import half_truth_choices
from components.benchmarks.scores import Scores, grouped, metrics
from components.core.records import HALF_TRUTHS

NAME = "half_truths"
FILE = "half_truths.parquet"


def score(context: EmbeddedContext) -> Scores:
    """Both accuracies over all rows and per kind."""
    table = context.read(HALF_TRUTHS, FILE)
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    texts = (context.texts(table[column].to_pylist()) for column in ("truth", "half_truth", "full_truth"))
    found = half_truth_choices(context.image_features[gold], *texts)
    return grouped(NAME, found, gold, {"kind": table["kind"].to_pylist()})


BENCHMARK = Benchmark(
    name=NAME,
    version=1,
    needs=(Need(FILE),),
    metrics=metrics("a tie is a failure", "accuracy", "ordered_accuracy"),
    score=score,
    key_metrics=(f"{NAME}/accuracy",),
)
