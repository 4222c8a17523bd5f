"""NegationCLIP's captions that also say what is not there: true of the picture, as far as can be known.

Without a vision model only a world that knows its facts can tell whether an object is there; elsewhere an object counts
as absent if the caption does not name it.
"""

from __future__ import annotations

import re
from typing import Any

from components.core.records import ABSENCES
from components.validation.checks.general import COMMON, KEPT, forms, name_words, says_name
from components.validation.table import Answer, Check, Synthesised, View, each
from components.validation.tables.negations import CUES


def _not_absent(view: View) -> list[Any]:
    """`object` where the picture shows it, `unknown` where the world has no such thing: a "bird" may be an owl."""
    facts = view.probes.facts
    if facts is None:
        return [None] * len(view.texts)
    return [
        "object" if facts.names(name, scene, scene) else None if facts.find_stranger(name, [scene]) else "unknown"
        for name, scene in zip(view.texts, view.rows["facts"], strict=True)
    ]


def find_denial_fault(text: str, source: str, name: str) -> str | None:
    """What is wrong with how `text`, made of `source`, denies the object `name`; None where nothing is.

    It must deny one thing more than its source: `none` or `many` if not, `another` where that is not the object, which
    at most three words and no punctuation may part from the word that denies.
    """
    added = len(CUES.findall(text)) - len(CUES.findall(source))
    if added != 1:
        return "many" if added > 1 else "none"
    cue, named, gap = CUES.pattern, _named(name).pattern, r"(?:[ -][^\W_]+){0,3}[ -]"
    near = rf"(?:{cue}){gap}(?:{named})|(?:{named}){gap}(?:{cue})"
    return None if re.search(near, text, re.IGNORECASE) else "another"


def _named(name: str) -> re.Pattern[str]:
    """Matches a name with its last word in the singular or a plural; earlier words may be left out."""
    *before, last = name_words(name)
    lead = "".join(rf"(?:{re.escape(word)}[ -])?" for word in before)
    body = "|".join(sorted(map(re.escape, forms(last)), key=len, reverse=True))
    return re.compile(rf"\b{lead}(?:{body})\b", re.IGNORECASE)


def _denial_faults(view: View) -> list[Any]:
    rows = zip(view.texts, view.sources, view.rows["absent_object"], strict=True)
    return [find_denial_fault(*row) for row in rows]


def _faults(view: View) -> list[Any]:
    facts = view.probes.facts
    if facts is None:
        return [None] * len(view.texts)
    rows = zip(view.texts, view.rows["absent_object"], view.rows["facts"], strict=True)
    return [facts.find_fault(_named(name).sub(" ", text), scene) for text, name, scene in rows]


UNMENTIONED = Check("mentioned", "mentioned", each(lambda name, source: "caption" if says_name(source, name) else None))
"""Is not named by the caption, which would put it there."""

ABSENT = Check("not_absent", "not_absent", _not_absent)
"""Is certainly not in the picture, where the world knows."""

DENIED = Check("denial", "denial", _denial_faults)
"""Denies that very object and nothing else."""

FAITHFUL_BESIDES = Check("fault", "fault", _faults)
"""Says what the picture shows, all of it and, but for the absent object, nothing else, where the world knows."""

_OF_NAMES = ("echo", "leak", "injection")

TABLES = (
    Synthesised(
        ABSENCES,
        (
            Answer(
                "absent_object",
                "name_absent",
                (*(check for check in COMMON if check.column in _OF_NAMES), UNMENTIONED, ABSENT),
                suffix="_object",
            ),
            Answer("absence", "state_absence", (*COMMON, *KEPT, DENIED, FAITHFUL_BESIDES)),
        ),
    ),
)
