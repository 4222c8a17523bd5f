"""SemCLIP's negations: sentences about the caption of which the picture shows the opposite."""

from __future__ import annotations

import re
from typing import Any

from components.records import NEGATIONS
from components.validation.checks import COMMON, strangers
from components.validation.table import Answer, Check, Synthesised, View

_CUES = re.compile(
    r"\b(?:no|not|cannot|without|none|nothing|never|neither|nor|nobody|nowhere|hardly|barely|lack(?:s|ed|ing)?|"
    r"absent|missing|gone|devoid|instead of|rather than|far from|free of|empty of|anything but|no longer|fails? to)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)


def _affirmed(view: View) -> list[Any]:
    """`no_cue` when a text seems to deny nothing, `stranger` when it denies what the picture does not show anyway."""
    facts = view.probes.facts

    def affirmed(text: str, scene: str, stranger: str | None) -> str | None:
        if _CUES.search(text):
            return "stranger" if stranger else None
        contradicts = facts is not None and (stranger is not None or facts.tells_another(text, scene))
        return None if contradicts else "no_cue"

    rows = zip(view.texts, view.rows["facts"], strangers(view), strict=True)
    return [affirmed(text, scene, stranger) for text, scene, stranger in rows]


AFFIRMED = Check("affirmed", "affirmed", _affirmed)
"""Denies what the picture shows: by a word of negation or, where the world knows, by contradicting it."""

TABLE = Synthesised(
    name="negations",
    table=NEGATIONS,
    answers=(Answer("negation", "negate_semclip", (*COMMON, AFFIRMED)),),
    quarantine="negations_quarantine",
)
