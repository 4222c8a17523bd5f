"""NegCLIP's hard negatives: nearly the caption's words, false of its picture."""

from __future__ import annotations

from typing import Any

from components.core.records import HARD_NEGATIVES
from components.core.words import overlap
from components.validation.checks.general import COMMON
from components.validation.table import Answer, Check, Synthesised, View, each


def _not_false(view: View) -> list[Any]:
    facts = view.probes.facts
    if facts is None:
        return [None] * len(view.texts)
    rows = zip(view.texts, view.rows["facts"], strict=True)
    return [
        None if facts.tells_another(text, scene) else facts.find_fault(text, scene) or "true" for text, scene in rows
    ]


OVERLAP = Check("overlap", "overlap", each(overlap), low="min_overlap")
"""Says it in the caption's words."""

FALSE = Check("not_false", "not_false", _not_false)
"""Says something false about the same objects, and leaves nothing out, where the world knows."""

TABLE = Synthesised(
    name="hard_negatives",
    table=HARD_NEGATIVES,
    answers=(Answer("hard_negative", "swap_negative", (*COMMON, OVERLAP, FALSE)),),
)
