"""Differences of two pictures or captions against texts about them, and the geometry of features."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from components.core.compute.metrics import Indices, Reals, strictly_greater
from components.core.system.errors import InputError
from components.core.tables.records import COMPARISONS, PARAPHRASE_QUERIES
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import QUERIES_FILE, ProjectContext
from components.evaluation.scoring.protocols import geometry
from components.evaluation.scoring.protocols.choices import group_numbers

DIFFERENCES = "differences"
FILE = "comparisons.parquet"
KINDS = ("size", "background", "position", "object")
ANSWERS = ("first", "second")
_FAILURE, _NONE = "a tie is a failure", "no ranking, so no ties"
_ZERO = "a cosine of zero is a failure, as in the released code; equation 2 counts it right"


def score_differences(context: ProjectContext) -> Scores:
    """Does the difference of two images have the direction of a text about it? (PC-CLIP, section 3.3 and table 1)

    `accuracy`: the true sentence is nearer to the difference than the one about the swapped pictures. `sign_accuracy`
    is the paper's rule (equation 2), which only uses the true sentence. `size_ordering_accuracy` compares every pair of
    pictures that show a thing in two sizes with the same sentence, "the first shows the larger". Chance is one half for
    all. Accuracies are also reported per kind of difference; `macro_accuracy` is their mean.
    """
    table = context.read(COMPARISONS, FILE)
    shown = [context.rows(table[column].to_pylist(), FILE) for column in ("first_id", "second_id")]
    first, second = (context.image_features[rows] for rows in shown)
    sentences = context.columns(table, "true_difference", "false_difference")
    true, false = (geometry.margins(first, second, texts) for texts in sentences)
    kinds = _checked(context, table["kind"].to_pylist(), "kind", KINDS)
    answers = _checked(context, table["answer"].to_pylist(), "answer", ANSWERS)
    overall = {"accuracy": strictly_greater(true, false), "sign_accuracy": geometry.classified(true, "wrong")}
    # If the second picture shows the larger thing, the sentence is false and must have the opposite direction.
    ordered = np.where(answers == "first", geometry.classified(true, "wrong"), geometry.classified(-false, "wrong"))

    pictures = np.stack(shown, axis=1)
    scores = grouped(DIFFERENCES, overall, pictures)
    macro, ordering = f"{DIFFERENCES}/macro_accuracy", f"{DIFFERENCES}/size_ordering_accuracy"
    groups = group_numbers(kinds.tolist())
    scores.update(Scores({macro: overall["accuracy"]}, {macro: groups}, pictures={macro: pictures}))
    for kind in (kind for kind in KINDS if (kinds == kind).any()):
        chosen = kinds == kind
        if kind == "size":
            scores.update(Scores({ordering: ordered[chosen]}, pictures={ordering: pictures[chosen]}))
        columns = {name: column[chosen] for name, column in overall.items()}
        scores.update(grouped(f"{DIFFERENCES}/kind_{kind}", columns, pictures[chosen]))
    return scores


def _checked(context: ProjectContext, words: list[str], column: str, known: tuple[str, ...]) -> npt.NDArray[np.str_]:
    """The words of a column `[rows]`; an `InputError` names one that is not `known`."""
    for word in sorted(set(words) - set(known)):
        raise InputError(f"{context.folder / FILE}: {column} '{word}' is unknown: use one of {', '.join(known)}")
    return np.array(words)


def score_geometry(context: ProjectContext) -> Scores:
    """Geometry of features; every value belongs to a pair or an item, so that its mean has an interval.

    `geometry/caption_difference/...` and `geometry/image_difference/...` hold the difference f_A - f_B of two captions
    or of two images against the text f_{A-B} about it (PC-CLIP, table 7). `antisymmetry` compares f_{A-B} with f_{B-A}.
    `alignment` is Wang and Isola's (2020, arXiv 2005.10242, section 4.1) of images with their captions and of captions
    with their paraphrases. Their uniformity is the logarithm of the mean of `gaussian_potential`, which is a mean over
    items. Values are distances: they are not shares and may exceed 1.
    """
    scores = grouped("geometry", *_opposites(context))
    scores.update(grouped("geometry", *_spread(context)))
    return scores


def _opposites(context: ProjectContext) -> tuple[dict[str, Reals], Indices]:
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
    table, gold = context.read_shown(PARAPHRASE_QUERIES, QUERIES_FILE)
    images = context.image_features[gold]
    captions, paraphrases = context.columns(table, "query", "paraphrase")
    values = {
        "image_caption/alignment": geometry.alignment(images, captions),
        "paraphrase/alignment": geometry.alignment(captions, paraphrases),
        "image/gaussian_potential": geometry.gaussian_potential(images),
        "caption/gaussian_potential": geometry.gaussian_potential(captions),
    }
    return values, gold


TABLE_BENCHMARKS = (
    on_test_split(
        name="differences",
        score=score_differences,
        files=[FILE],
        metrics=(
            *metrics(_FAILURE, "accuracy"),
            *metrics(_ZERO, "sign_accuracy"),
            *metrics(_FAILURE, "macro_accuracy"),
            *metrics(_ZERO, "size_ordering_accuracy"),
        ),
        key_metrics=("differences/accuracy", "differences/size_ordering_accuracy"),
    ),
    on_test_split(
        name="geometry",
        score=score_geometry,
        files=[FILE, QUERIES_FILE],
        metrics=(
            *metrics(_NONE, "distance", higher_is_better=False),
            *metrics(_NONE, "reverse_distance", "antisymmetry"),
            *metrics(_NONE, "alignment", "gaussian_potential", higher_is_better=False),
        ),
    ),
)
