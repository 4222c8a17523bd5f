"""SemCLIP's judged negations: sentences about the caption of which the picture shows the opposite."""

from __future__ import annotations

import re
from typing import Any

from components.core.records import NEGATIONS
from components.validation.checks.general import COMMON, strangers
from components.validation.table import Answer, Check, Synthesised, View

_CUES = re.compile(
    r"\b(?:no|not|cannot|without|none|nothing|never|neither|nor|nobody|nowhere|hardly|barely|lack(?:s|ed|ing)?|"
    r"absent|missing|gone|devoid|instead of|rather than|far from|free of|empty of|anything but|no longer|fails? to)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)


def _affirmed(view: View) -> list[Any]:
    """`no_cue` when a text seems to deny nothing, `stranger` when it denies what the picture does not show anyway.

    Without a cue it must contradict the picture, or the judge must have said that it does; where the world knows the
    text to be true, the judge is wrong.
    """
    facts = view.probes.facts

    def affirmed(text: str, scene: str, stranger: str | None, verdict: str | None) -> str | None:
        if _CUES.search(text):
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

TABLE = Synthesised(
    name="negations",
    table=NEGATIONS,
    answers=(Answer("negation", "judge_negation", (*COMMON, AFFIRMED)),),
)
