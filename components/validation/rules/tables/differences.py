"""PC-CLIP's texts: comparisons of two pictures, filtered as in its appendix B.2, scores of them by a judge, and
descriptions and differences of classes for prompts.
"""

from __future__ import annotations

import json
import re
from typing import Any

from components.core.tables.records import (
    CLASS_DESCRIPTIONS,
    CLASS_DIFFERENCES,
    DIFFERENCE_SCORES,
    DIFFERENCES,
    DIFFERENCES_CUB,
)
from components.core.text import content_words, normalised
from components.validation.rules.checks.general import ABOUT_CLASSES, COMMON, NO_STRANGER
from components.validation.rules.table import Synthesised, TableAnswer, TextCheck, View, each

_JUNK = re.compile(r"^(?:[-*•#]|\d+[.):])|#\w|<\w+/?>|[*|{}=\\^~]|_{2,}|(\S)\1{4,}|\bdescription:", re.IGNORECASE)


def _one_sided(view: View) -> list[Any]:
    """`first` or `second` if the text does not mention that picture."""
    facts = view.probes.facts

    def mentions(text: str, row: Any) -> tuple[bool, bool]:
        if facts is not None:
            return facts.names(text, row.facts, row.other_facts), facts.names(text, row.other_facts, row.facts)
        words, own, other = map(content_words, (text, row.caption, row.other_caption))
        return bool(words & (own - other)), bool(words & (other - own))

    def unmentioned(text: str, row: Any) -> str | None:
        first, second = mentions(text, row)
        if first and second:
            return None
        return "second" if first else "first"

    return [unmentioned(text, row) for text, row in zip(view.texts, view.rows.itertuples(), strict=True)]


def _same(view: View) -> list[Any]:
    pairs = zip(view.rows["caption"], view.rows["other_caption"], strict=True)
    return ["caption" if normalised(one) == normalised(other) else None for one, other in pairs]


_COMPARED = (
    *COMMON,
    TextCheck("characters", "short", each(lambda text, _: float(len(text))), low="min_characters", paper=True),
    TextCheck("not_ascii", "not_ascii", each(lambda text, _: None if text.isascii() else "letter"), paper=True),
    TextCheck("junk", "junk", each(lambda text, _: "list" if _JUNK.search(text) else None), paper=True),
    TextCheck("one_sided", "one_sided", _one_sided),
    NO_STRANGER,
    TextCheck("same", "same", _same),
)
"""Checks of a comparison of two captions. `_JUNK` replaces the some 70 strings of the authors' released
data/filter_comparatives.py, most of them slips of their LLaMA2."""

_SCORE = TextCheck("score", "score", each(lambda judgement, _: float(json.loads(judgement)["score"])), low="min_score")
"""The judge's score."""

TABLES = (
    Synthesised(DIFFERENCES, (TableAnswer("difference", "difference", _COMPARED),)),
    Synthesised(DIFFERENCES_CUB, (TableAnswer("difference", "difference_cub", _COMPARED),)),
    Synthesised(DIFFERENCE_SCORES, (TableAnswer("judgement", "score_difference", (_SCORE,)),)),
    Synthesised(CLASS_DESCRIPTIONS, (TableAnswer("description", "class_description", ABOUT_CLASSES),), about="classes"),
    Synthesised(CLASS_DIFFERENCES, (TableAnswer("difference", "class_difference", ABOUT_CLASSES),), about="classes"),
)
