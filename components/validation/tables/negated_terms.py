"""Negations in the manner of CC-Neg: the caption with one "no", "not" or "without" put into it."""

from __future__ import annotations

import re

from components.core.records import NEGATED_TERMS
from components.validation.checks.general import COMMON, NO_STRANGER
from components.validation.table import Answer, Check, Synthesised, each

_TERMS = re.compile(r"\b(?:no|not|without)\b", re.IGNORECASE)


def _wrong_terms(text: str, source: str) -> str | None:
    added = len(_TERMS.findall(text)) - len(_TERMS.findall(source))
    if added == 1:
        return None
    return "many" if added > 1 else "none"


ONE_TERM = Check("terms", "terms", each(_wrong_terms))
"""Has exactly one of the three words more than the caption."""

TABLE = Synthesised(
    name="negated_terms",
    table=NEGATED_TERMS,
    answers=(Answer("negated_term", "negate_terms", (*COMMON, ONE_TERM, NO_STRANGER)),),
)
