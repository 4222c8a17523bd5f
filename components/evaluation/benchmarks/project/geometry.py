"""Geometry of features; every value belongs to a pair or an item, so that its mean has an interval.

`geometry/caption_difference/...` and `geometry/image_difference/...` hold the difference f_A - f_B of two captions or
of two images against the text f_{A-B} about it (PC-CLIP, table 7). `antisymmetry` compares f_{A-B} with f_{B-A}.
`alignment` is Wang and Isola's (2020, arXiv 2005.10242, section 4.1) of images with their captions and of captions with
their paraphrases. Their uniformity is the logarithm of the mean of `gaussian_potential`, which is a mean over items.
Values are distances: they are not shares and may exceed 1.
"""

from __future__ import annotations

import numpy as np

from components.core.compute.metrics import Indices, Reals
from components.core.tables.records import COMPARISONS, PARAPHRASE_QUERIES
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import QUERIES_FILE, ProjectContext
from components.evaluation.scoring.protocols import geometry

NAME = "geometry"
FILE = "comparisons.parquet"
_NONE = "no ranking, so no ties"


def score(context: ProjectContext) -> Scores:
    """Distances of differences, alignment and Gaussian potentials, each per pair or item."""
    scores = grouped(NAME, *_differences(context))
    scores.update(grouped(NAME, *_spread(context)))
    return scores


def _differences(context: ProjectContext) -> tuple[dict[str, Reals], Indices]:
    """Values of pairs, and the two pictures of each."""
    table = context.read(COMPARISONS, FILE)
    ids = [table[column].to_pylist() for column in ("first_id", "second_id")]
    texts, opposite = context.columns(table, "true_difference", "false_difference")
    shown = [context.rows(column, FILE) for column in ids]
    images = [context.image_features[rows] for rows in shown]
    captions = [context.texts_of("query", column, FILE) for column in ids]
    values: dict[str, Reals] = {}
    for what, (first, second) in (("caption", captions), ("image", images)):
        group = f"{what}_difference"
        values[f"{group}/distance"] = geometry.comparison_distance(first, second, texts)
        # The reverse uses the sentence about the swapped pair, because the negated difference would add nothing.
        values[f"{group}/reverse_distance"] = geometry.comparison_distance(first, second, opposite)
    values["difference_text/antisymmetry"] = geometry.antisymmetry(texts, opposite)
    return values, np.stack(shown, axis=1)


def _spread(context: ProjectContext) -> tuple[dict[str, Reals], Indices]:
    """Values of items, and the picture of each."""
    table = context.read(PARAPHRASE_QUERIES, QUERIES_FILE)
    gold = context.rows(table["image_id"].to_pylist(), QUERIES_FILE)
    images = context.image_features[gold]
    captions, paraphrases = context.columns(table, "query", "paraphrase")
    values = {
        "image_caption/alignment": geometry.alignment(images, captions),
        "paraphrase/alignment": geometry.alignment(captions, paraphrases),
        "image/gaussian_potential": geometry.gaussian_potential(images),
        "caption/gaussian_potential": geometry.gaussian_potential(captions),
    }
    return values, gold


BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE, QUERIES_FILE],
    (
        *metrics(_NONE, "distance", higher_is_better=False),
        *metrics(_NONE, "reverse_distance", "antisymmetry"),
        *metrics(_NONE, "alignment", "gaussian_potential", higher_is_better=False),
    ),
)
