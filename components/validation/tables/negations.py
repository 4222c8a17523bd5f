"""Texts that are false of the picture: SemCLIP's judged negations, CC-Neg's with one "no", "not" or "without" put into
the caption, and NegCLIP's hard negatives of nearly the caption's words.
"""

from __future__ import annotations

import re
from typing import Any

from components.core.records import HARD_NEGATIVES, NEGATED_TERMS, NEGATIONS
from components.core.words import overlap
from components.validation.checks.general import COMMON, NO_STRANGER, strangers
from components.validation.table import Answer, Check, Synthesised, View, each

CUES = re.compile(
    r"\b(?:no|not|cannot|without|none|nothing|never|neither|nor|nobody|nowhere|hardly|barely|lack(?:s|ed|ing)?|"
    r"absent|missing|gone|devoid|instead of|rather than|far from|free of|empty of|anything but|no longer|fails? to)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
"""What denies something, each with the thing that it denies."""


def _affirmed(view: View) -> list[Any]:
    """`no_cue` when a text seems to deny nothing, `stranger` when it denies what the picture does not show anyway.

    Without a cue it must contradict the picture, or the judge must have said that it does; where the world knows the
    text to be true, the judge is wrong.
    """
    facts = view.probes.facts

    def affirmed(text: str, scene: str, stranger: str | None, verdict: str | None) -> str | None:
        if CUES.search(text):
            return "stranger" if stranger else None
        if verdict == "yes" and (facts is None or facts.find_fault(text, scene) is not None):
            return None
        contradicts = facts is not None and (stranger is not None or facts.tells_another(text, scene))
        return None if contradicts else "no_cue"

    verdicts = view.rows["verdict"] if "verdict" in view.rows else [None] * len(view.texts)
    rows = zip(view.texts, view.rows["facts"], strangers(view), verdicts, strict=True)
    return [affirmed(*row) for row in rows]


AFFIRMED = Check("affirmed", "affirmed", _affirmed)
"""Denies what the picture shows: by a word of negation, by contradicting it where the world knows, or as the judge
says, who is asked about every candidate and not about what was written in place of a rejected one."""

_TERMS = re.compile(r"\b(?:no|not|without)\b", re.IGNORECASE)


def _wrong_terms(text: str, source: str) -> str | None:
    added = len(_TERMS.findall(text)) - len(_TERMS.findall(source))
    if added == 1:
        return None
    return "many" if added > 1 else "none"


ONE_TERM = Check("terms", "terms", each(_wrong_terms))
"""Has exactly one of the three words more than the caption."""


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

TABLES = (
    Synthesised(NEGATIONS, (Answer("negation", "judge_negation", (*COMMON, AFFIRMED)),)),
    Synthesised(NEGATED_TERMS, (Answer("negated_term", "negate_terms", (*COMMON, ONE_TERM, NO_STRANGER)),)),
    Synthesised(HARD_NEGATIVES, (Answer("hard_negative", "swap_negative", (*COMMON, OVERLAP, FALSE)),)),
)
