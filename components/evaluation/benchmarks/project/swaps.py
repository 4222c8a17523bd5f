"""Is the true caption closer to the image than one with two things swapped? (ARO: Yuksekgonul et al. 2023)

Micro accuracy is the mean over rows; macro accuracy is the mean over the table's groups (ARO's own average).
"""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import strictly_greater
from components.core.system.errors import InputError
from components.core.tables.records import SWAPS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, metrics
from components.evaluation.scoring.context import ProjectContext

FILE = "swaps.parquet"
KINDS = ("relation", "attribute", "mixed")
"""`mixed` is that of queries that a language model wrote: they may exchange either."""


def score(context: ProjectContext) -> Scores:
    """Accuracy per kind of swap, and the macro accuracy over the groups of the relations."""
    table = context.read(SWAPS, FILE)
    gold = context.rows(table["image_id"].to_pylist(), FILE)
    images = context.image_features[gold]
    true, false = (
        np.einsum("nd,nd->n", images, context.texts(table[column].to_pylist()))
        for column in ("true_caption", "false_caption")
    )
    correct = strictly_greater(true, false)
    kinds = np.array(table["kind"].to_pylist())
    for kind in set(kinds.tolist()) - set(KINDS):
        raise InputError(f"{context.folder / FILE}: kind '{kind}' is unknown: use {', '.join(KINDS)}")
    values = {f"swaps/{kind}_accuracy": correct[kinds == kind] for kind in KINDS if (kinds == kind).any()}
    pictures = {f"swaps/{kind}_accuracy": gold[kinds == kind] for kind in KINDS}
    pictures["swaps/relation_macro_accuracy"] = pictures["swaps/relation_accuracy"]
    strata = {}
    if "swaps/relation_accuracy" in values:
        groups = np.array(table["group"].to_pylist())[kinds == "relation"]
        values["swaps/relation_macro_accuracy"] = values["swaps/relation_accuracy"]
        strata["swaps/relation_macro_accuracy"] = np.unique(groups, return_inverse=True)[1].astype(np.int64)
    return Scores(values, strata, pictures=pictures)


BENCHMARK = on_test_split(
    "swaps",
    score,
    [FILE],
    metrics(
        "a tie is a failure", "relation_accuracy", "attribute_accuracy", "mixed_accuracy", "relation_macro_accuracy"
    ),
    key_metrics=("swaps/attribute_accuracy", "swaps/relation_accuracy", "swaps/mixed_accuracy"),
)
