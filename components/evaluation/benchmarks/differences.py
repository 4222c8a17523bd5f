"""Does the difference of two images point where a text about it does? (PC-CLIP, section 3.3 and table 1)

`accuracy` asks whether the true sentence is nearer to the difference than the one that is true of the pictures
exchanged. `sign_accuracy` is the paper's own rule (equation 2), which knows the true sentence alone.
`size_ordering_accuracy` shows every pair of pictures in which a thing has two sizes the same sentence, "the first shows
the larger": how well it orders pictures by size. Chance is one half everywhere.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from components.errors import InputError
from components.evaluation.benchmark import Benchmark, Context, Metric, Scores
from components.evaluation.metrics import Reals, strictly_greater
from components.evaluation.protocols.difference import classified, margins
from components.evaluation.protocols.row_pairs import group_numbers
from components.records import COMPARISONS

NAME = "differences"
FILE = "comparisons.parquet"
KINDS = ("size", "background", "position", "object")
ANSWERS = ("first", "second")
_ZERO = "a cosine of zero is a failure, as in the released code; equation 2 counts it right"


def score(context: Context) -> Scores:
    """Accuracies over all pairs, per kind of difference and averaged over kinds, and the ordering by size."""
    table = context.read(COMPARISONS, FILE)
    first, second = (
        context.image_features[context.rows(table[column].to_pylist(), FILE)] for column in ("first_id", "second_id")
    )
    true, false = (
        margins(first, second, context.texts(table[column].to_pylist()))
        for column in ("true_difference", "false_difference")
    )
    kinds = _checked(context, table["kind"].to_pylist(), "kind", KINDS)
    answers = _checked(context, table["answer"].to_pylist(), "answer", ANSWERS)
    overall = {"accuracy": strictly_greater(true, false), "sign_accuracy": classified(true, "wrong")}
    values: dict[str, Reals] = {f"{NAME}/{name}": found for name, found in overall.items()}
    values[f"{NAME}/macro_accuracy"] = overall["accuracy"]
    # Where the second picture is the larger one, the sentence about the first is the false one and must point away.
    ordered = np.where(answers == "first", classified(true, "wrong"), classified(-false, "wrong"))
    if (kinds == "size").any():
        values[f"{NAME}/size_ordering_accuracy"] = ordered[kinds == "size"]
    for kind in KINDS:
        if (kinds == kind).any():
            values |= {f"{NAME}/kind_{kind}/{name}": found[kinds == kind] for name, found in overall.items()}
    return Scores(values, strata={f"{NAME}/macro_accuracy": group_numbers(kinds.tolist())})


def _checked(context: Context, found: list[str], column: str, known: tuple[str, ...]) -> npt.NDArray[np.str_]:
    """The words of a column `[rows]`; an `InputError` names one that is not `known`."""
    for word in sorted(set(found) - set(known)):
        raise InputError(f"{context.folder / FILE}: {column} '{word}' is unknown: use one of {', '.join(known)}")
    return np.array(found)


BENCHMARK = Benchmark(
    name=NAME,
    version=1,
    files=(FILE,),
    metrics=(
        Metric("accuracy", higher_is_better=True, ties="a tie is a failure"),
        Metric("sign_accuracy", higher_is_better=True, ties=_ZERO),
        Metric("macro_accuracy", higher_is_better=True, ties="a tie is a failure"),
        Metric("size_ordering_accuracy", higher_is_better=True, ties=_ZERO),
    ),
    score=score,
)
