"""Does the difference of two images have the direction of a text about it? (PC-CLIP, section 3.3 and table 1)

`accuracy`: the true sentence is nearer to the difference than the one about the swapped pictures. `sign_accuracy` is
the paper's rule (equation 2), which only uses the true sentence. `size_ordering_accuracy` compares every pair of
pictures that show a thing in two sizes with the same sentence, "the first shows the larger". Chance is one half for
all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from components.core.compute.metrics import strictly_greater
from components.core.system.errors import InputError
from components.core.tables.records import COMPARISONS
from components.evaluation.benchmarks.project import on_test_split
from components.evaluation.scoring.benchmark import Scores, grouped, metrics
from components.evaluation.scoring.context import ProjectContext
from components.evaluation.scoring.protocols.choices import group_numbers
from components.evaluation.scoring.protocols.geometry import classified, margins

NAME = "differences"
FILE = "comparisons.parquet"
KINDS = ("size", "background", "position", "object")
ANSWERS = ("first", "second")
_ZERO = "a cosine of zero is a failure, as in the released code; equation 2 counts it right"


def score(context: ProjectContext) -> Scores:
    """Accuracies over all pairs, per kind of difference and averaged over kinds, and the ordering by size."""
    table = context.read(COMPARISONS, FILE)
    shown = [context.rows(table[column].to_pylist(), FILE) for column in ("first_id", "second_id")]
    first, second = (context.image_features[rows] for rows in shown)
    true, false = (
        margins(first, second, context.texts(table[column].to_pylist()))
        for column in ("true_difference", "false_difference")
    )
    kinds = _checked(context, table["kind"].to_pylist(), "kind", KINDS)
    answers = _checked(context, table["answer"].to_pylist(), "answer", ANSWERS)
    overall = {"accuracy": strictly_greater(true, false), "sign_accuracy": classified(true, "wrong")}
    # If the second picture shows the larger thing, the sentence is false and must have the opposite direction.
    ordered = np.where(answers == "first", classified(true, "wrong"), classified(-false, "wrong"))

    pictures = np.stack(shown, axis=1)
    scores = grouped(NAME, overall, pictures)
    macro, ordering = f"{NAME}/macro_accuracy", f"{NAME}/size_ordering_accuracy"
    groups = group_numbers(kinds.tolist())
    scores.update(Scores({macro: overall["accuracy"]}, {macro: groups}, pictures={macro: pictures}))
    for kind in (kind for kind in KINDS if (kinds == kind).any()):
        chosen = kinds == kind
        if kind == "size":
            scores.update(Scores({ordering: ordered[chosen]}, pictures={ordering: pictures[chosen]}))
        columns = {name: column[chosen] for name, column in overall.items()}
        scores.update(grouped(f"{NAME}/kind_{kind}", columns, pictures[chosen]))
    return scores


def _checked(context: ProjectContext, words: list[str], column: str, known: tuple[str, ...]) -> npt.NDArray[np.str_]:
    """The words of a column `[rows]`; an `InputError` names one that is not `known`."""
    for word in sorted(set(words) - set(known)):
        raise InputError(f"{context.folder / FILE}: {column} '{word}' is unknown: use one of {', '.join(known)}")
    return np.array(words)


BENCHMARK = on_test_split(
    NAME,
    score,
    [FILE],
    (
        *metrics("a tie is a failure", "accuracy"),
        *metrics(_ZERO, "sign_accuracy"),
        *metrics("a tie is a failure", "macro_accuracy"),
        *metrics(_ZERO, "size_ordering_accuracy"),
    ),
    key_metrics=(f"{NAME}/accuracy", f"{NAME}/size_ordering_accuracy"),
)
