"""Does an added false detail make a caption less similar to its image? (Kargi et al. 2026, arXiv 2602.23906)

Chance is one half for `accuracy` and one sixth for `ordered_accuracy`. An encoder that prefers shorter texts has a high
`accuracy`, but not a high `ordered_accuracy`, which also includes a longer true caption. Values are also reported per
kind of detail.
"""

from __future__ import annotations

from components.core.tables.records import HALF_TRUTHS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.choices import half_truth_choices

NAME = "half_truths"
FILE = "half_truths.parquet"


def score(context: ProjectContext) -> Scores:
    """Both accuracies over all rows and per kind."""
    table = context.read(HALF_TRUTHS, FILE)
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    texts = context.columns(table, "truth", "half_truth", "full_truth")
    columns = half_truth_choices(context.image_features[gold], *texts)
    return grouped(NAME, columns, gold, {"kind": table["kind"].to_pylist()})


BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE],
    metrics("a tie is a failure", "accuracy", "ordered_accuracy"),
    key_metrics=(f"{NAME}/accuracy",),
)
