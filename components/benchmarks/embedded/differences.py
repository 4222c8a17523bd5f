"""Does the difference of two images point where a text about it does? (PC-CLIP, section 3.3 and table 1)

`accuracy` asks whether the true sentence is nearer to the difference than the one that is true of the pictures
exchanged. `sign_accuracy` is the paper's own rule (equation 2), which knows the true sentence alone.
`size_ordering_accuracy` shows every pair of pictures in which a thing has two sizes the same sentence, "the first shows
the larger": how well it orders pictures by size. Chance is one half everywhere.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from components.benchmarks.benchmark import Benchmark, Need
from components.benchmarks.encoding.context import EmbeddedContext
from components.benchmarks.protocols.choices import group_numbers
from components.benchmarks.protocols.geometry import classified, margins
from components.benchmarks.scores import Columns, Metric, Scores
from components.core.errors import InputError
from components.core.metrics import strictly_greater
from components.core.records import COMPARISONS

NAME = "differences"
FILE = "comparisons.parquet"
KINDS = ("size", "background", "position", "object")
ANSWERS = ("first", "second")
_ZERO = "a cosine of zero is a failure, as in the released code; equation 2 counts it right"


def score(context: EmbeddedContext) -> Scores:
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
    # Where the second picture is the larger one, the sentence about the first is the false one and must point away.
    ordered = np.where(answers == "first", classified(true, "wrong"), classified(-false, "wrong"))

    def named(columns: dict[str, Columns], ordered: Columns) -> dict[str, Columns]:
        named = {f"{NAME}/{name}": column for name, column in columns.items()}
        named[f"{NAME}/macro_accuracy"] = columns["accuracy"]
        if (kinds == "size").any():
            named[f"{NAME}/size_ordering_accuracy"] = ordered[kinds == "size"]
        for kind in KINDS:
            if (kinds == kind).any():
                named |= {f"{NAME}/kind_{kind}/{name}": column[kinds == kind] for name, column in columns.items()}
        return named

    pictures = np.stack(shown, axis=1)
    return Scores(
        named(overall, ordered),
        strata={f"{NAME}/macro_accuracy": group_numbers(kinds.tolist())},
        pictures=named(dict.fromkeys(overall, pictures), pictures),
    )


def _checked(context: EmbeddedContext, found: list[str], column: str, known: tuple[str, ...]) -> npt.NDArray[np.str_]:
    """The words of a column `[rows]`; an `InputError` names one that is not `known`."""
    for word in sorted(set(found) - set(known)):
        raise InputError(f"{context.folder / FILE}: {column} '{word}' is unknown: use one of {', '.join(known)}")
    return np.array(found)


BENCHMARK = Benchmark(
    name=NAME,
    version=1,
    needs=(Need(FILE),),
    metrics=(
        Metric("accuracy", higher_is_better=True, ties="a tie is a failure"),
        Metric("sign_accuracy", higher_is_better=True, ties=_ZERO),
        Metric("macro_accuracy", higher_is_better=True, ties="a tie is a failure"),
        Metric("size_ordering_accuracy", higher_is_better=True, ties=_ZERO),
    ),
    score=score,
    key_metrics=(f"{NAME}/accuracy", f"{NAME}/size_ordering_accuracy"),
)
