"""PC-CLIP's comparisons of two pictures, filtered in the manner of its appendix B.2, and a judge's scores of them."""

from __future__ import annotations

import json
import re
from typing import Any

from components.core.records import DIFFERENCE_SCORES, DIFFERENCES, DIFFERENCES_CUB
from components.core.words import content_words, normalised
from components.validation.checks.general import COMMON, NO_STRANGER
from components.validation.table import Answer, Check, Synthesised, View, each

_JUNK = re.compile(r"^(?:[-*•#]|\d+[.):])|#\w|<\w+/?>|[*|{}=\\^~]|_{2,}|(\S)\1{4,}|\bdescription:", re.IGNORECASE)


def _one_sided(view: View) -> list[Any]:
    """`first` or `second` when that picture goes unmentioned."""
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


COMPARED = (
    *COMMON,
    Check("characters", "short", each(lambda text, _: float(len(text))), low="min_characters", paper=True),
    Check("not_ascii", "not_ascii", each(lambda text, _: None if text.isascii() else "letter"), paper=True),
    Check("junk", "junk", each(lambda text, _: "list" if _JUNK.search(text) else None), paper=True),
    Check("one_sided", "one_sided", _one_sided),
    NO_STRANGER,
    Check("same", "same", _same),
)
"""What a comparison of two captions must fulfil. `_JUNK` stands for the some 70 strings of the authors' released
data/filter_comparatives.py, most of them slips of their LLaMA2."""

SCORE = Check("score", "score", each(lambda judgement, _: float(json.loads(judgement)["score"])), low="min_score")
"""Finds the difference good enough."""

TABLES = (
    Synthesised(DIFFERENCES, (Answer("difference", "difference", COMPARED),)),
    Synthesised(DIFFERENCES_CUB, (Answer("difference", "difference_cub", COMPARED),)),
    Synthesised(DIFFERENCE_SCORES, (Answer("judgement", "score_difference", (SCORE,)),)),
)
