"""Synthesised tables of the papers; their columns are in `core/tables/records.py`.

Without facts, an object counts as absent if the caption does not name it. PC-CLIP's comparisons are filtered as in its
appendix B.2.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from typing import Any

from components.captions.validation.rules.general import (
    ABOUT_CLASSES,
    COMMON,
    FAITHFUL,
    KEPT,
    NEW_WORDS,
    NO_STRANGER,
    UNSEEN,
    by_facts,
    forms,
    name_words,
    says_name,
    strangers,
)
from components.captions.validation.rules.table import Synthesised, TableAnswer, TextCheck, View, each, in_english
from components.core.system.discovery import choose
from components.core.tables import records
from components.core.text import content_words, normalised, overlap
from components.data.world.fact_checks import FactChecks

_TRUE = (*COMMON, *KEPT, FAITHFUL)
_KEPT_BUT_DENYING = tuple(check for check in KEPT if check.column != "changed_negation")

CUES = re.compile(
    r"\b(?:no|not|cannot|without|none|nothing|never|neither|nor|nobody|nowhere|hardly|barely|lack(?:s|ed|ing)?|"
    r"absent|missing|gone|devoid|instead of|rather than|far from|free of|empty of|anything but|no longer|fails? to)\b"
    r"|n['’]t\b",
    re.IGNORECASE,
)
"""Words that deny a thing."""
_TERMS = re.compile(r"\b(?:no|not|without)\b", re.IGNORECASE)


def _affirmed(view: View) -> list[Any]:
    """`no_cue` for a text that denies nothing, `stranger` for one that denies a thing that the picture does not show.

    A text without a cue must contradict the picture, or the judge must have found that it does; where the facts show
    that the text is true, the judge is wrong.
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


def added_terms(text: str, source: str) -> list[str]:
    """The words "no", "not" and "without" of `text`, in lower case, that `source` does not have.

    >>> added_terms("No dog without a ball", "a dog without a ball")
    ['no']
    """
    added, had = Counter(map(str.lower, _TERMS.findall(text))), Counter(map(str.lower, _TERMS.findall(source)))
    return list((added - had).elements())


def _wrong_terms(text: str, source: str) -> str | None:
    added = len(_TERMS.findall(text)) - len(_TERMS.findall(source))
    if added == 1:
        return None
    return "many" if added > 1 else "none"


def _not_false(facts: FactChecks, text: str, scene: str) -> str | None:
    return None if facts.tells_another(text, scene) else facts.find_fault(text, scene) or "true"


_AFFIRMED = TextCheck("affirmed", "affirmed", _affirmed)
"""Denies a thing that the picture shows: by a word of negation, by contradicting known facts, or by the judge's
verdict. The judge sees every candidate, but not the text written in place of a rejected one."""
_ONE_TERM = TextCheck("terms", "terms", in_english(each(_wrong_terms)))
"""Has exactly one of the three words more than the caption."""
_OVERLAP = TextCheck("overlap", "overlap", each(overlap), low="min_overlap")
"""Uses the caption's words."""
_FALSE = TextCheck("not_false", "not_false", by_facts(_not_false, "facts"))
"""Is false of the same objects, and omits nothing."""


def find_denial_fault(text: str, source: str, name: str) -> str | None:
    """The fault in the denial of the object `name` by `text`, which was made of `source`; None if there is no fault.

    The text must deny one thing more than its source, else `none` or `many`. This must be the object, else `another`;
    at most three words and no punctuation may be between the object and the word of negation.
    """
    added = len(CUES.findall(text)) - len(CUES.findall(source))
    if added != 1:
        return "many" if added > 1 else "none"
    cue, named, gap = CUES.pattern, _named(name).pattern, r"(?:[ -][^\W_]+){0,3}[ -]"
    near = rf"(?:{cue}){gap}(?:{named})|(?:{named}){gap}(?:{cue})"
    return None if re.search(near, text, re.IGNORECASE) else "another"


def _named(name: str) -> re.Pattern[str]:
    """Matches a name with its last word in the singular or a plural; earlier words are optional."""
    *before, last = name_words(name)
    lead = "".join(rf"(?:{re.escape(word)}[ -])?" for word in before)
    body = "|".join(sorted(map(re.escape, forms(last)), key=len, reverse=True))
    return re.compile(rf"\b{lead}(?:{body})\b", re.IGNORECASE)


def _denial_faults(view: View) -> list[Any]:
    rows = zip(view.texts, view.sources, view.rows["absent_object"], strict=True)
    return [find_denial_fault(*row) for row in rows]


def _not_absent(facts: FactChecks, name: str, scene: str) -> str | None:
    """`object` if the picture shows it, `unknown` if the world has no such thing: a "bird" may be an owl."""
    if facts.names(name, scene, scene):
        return "object"
    return None if facts.find_stranger(name, [scene]) else "unknown"


def _fault_besides(facts: FactChecks, text: str, name: str, scene: str) -> str | None:
    return facts.find_fault(_named(name).sub(" ", text), scene)


_UNMENTIONED = TextCheck(
    "mentioned", "mentioned", each(lambda name, source: "caption" if says_name(source, name) else None)
)
"""Is not named by the caption."""
_ABSENT = TextCheck("not_absent", "not_absent", by_facts(_not_absent, "facts"))
"""Is certainly not in the picture."""
_DENIED = TextCheck("denial", "denial", in_english(_denial_faults))
"""Denies only that object."""
_FAITHFUL_BESIDES = TextCheck("fault", "fault", by_facts(_fault_besides, "absent_object", "facts"))
"""Describes the whole picture and, except for the absent object, nothing else."""
_OF_NAMES = tuple(check for check in COMMON if check.column in ("echo", "leak", "injection"))


def _true_part(facts: FactChecks, text: str, scene: str) -> str | None:
    """`true` or `nothing` if a foil is not certainly false."""
    return {None: "true", "nothing": "nothing"}.get(facts.find_part_fault(text, scene))


_TRUE_PART = TextCheck("fault", "fault", by_facts(FactChecks.find_part_fault, "facts"))
"""Describes a part of the picture correctly."""
_FALSE_PART = TextCheck("not_false", "not_false", by_facts(_true_part, "facts"))
"""Is false of the picture."""
_OF_PARTS = tuple(check for check in COMMON if check.column not in ("words", "similarity"))
"""A part may have two words, and a foil any similarity."""

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
    TextCheck(
        "not_ascii", "not_ascii", in_english(each(lambda text, _: None if text.isascii() else "letter")), paper=True
    ),
    TextCheck("junk", "junk", each(lambda text, _: "list" if _JUNK.search(text) else None), paper=True),
    TextCheck("one_sided", "one_sided", _one_sided),
    NO_STRANGER,
    TextCheck("size", "size", by_facts(FactChecks.find_size_fault, "facts", "other_facts")),
    TextCheck("same", "same", _same),
)
"""Checks of a comparison of two captions. `_JUNK` replaces the some 70 strings of the authors' released
data/filter_comparatives.py, most of them slips of their LLaMA2."""

_SCORE = TextCheck("score", "score", each(lambda judgement, _: float(json.loads(judgement)["score"])), low="min_score")
"""The judge's score."""

_TABLES = (
    Synthesised(
        records.PARAPHRASES,
        (
            TableAnswer("paraphrase_1", "paraphrase_1", _TRUE, suffix="_1"),
            TableAnswer("paraphrase_2", "paraphrase_2", (*_TRUE, NEW_WORDS), suffix="_2"),
        ),
    ),
    Synthesised(records.REWRITES, (TableAnswer("rewrite", "rewrite", (*_TRUE, NEW_WORDS)),)),
    Synthesised(records.SEMCLIP_PARAPHRASES, (TableAnswer("semclip_paraphrase", "judge_paraphrase", _TRUE),)),
    Synthesised(
        records.QUERY_PARAPHRASES, (TableAnswer("paraphrase", "query_paraphrase", (*UNSEEN, *KEPT)),), about="queries"
    ),
    Synthesised(records.NEGATIONS, (TableAnswer("negation", "judge_negation", (*COMMON, _AFFIRMED)),)),
    Synthesised(
        records.NEGATED_TERMS, (TableAnswer("negated_term", "negate_terms", (*COMMON, _ONE_TERM, NO_STRANGER)),)
    ),
    Synthesised(records.HARD_NEGATIVES, (TableAnswer("hard_negative", "swap_negative", (*COMMON, _OVERLAP, _FALSE)),)),
    Synthesised(
        records.ABSENCES,
        (
            TableAnswer("absent_object", "name_absent", (*_OF_NAMES, _UNMENTIONED, _ABSENT), suffix="_object"),
            TableAnswer("absence", "state_absence", (*COMMON, *_KEPT_BUT_DENYING, _DENIED, _FAITHFUL_BESIDES)),
        ),
    ),
    Synthesised(
        records.UNITS,
        (
            TableAnswer("unit", "name_unit", (*_OF_PARTS, _OVERLAP, _TRUE_PART), suffix="_unit"),
            TableAnswer("unit_foil", "change_unit", (*_OF_PARTS, _OVERLAP, _FALSE_PART), suffix="_foil"),
        ),
    ),
    Synthesised(records.DIFFERENCES, (TableAnswer("difference", "difference", _COMPARED),)),
    Synthesised(records.DIFFERENCES_CUB, (TableAnswer("difference", "difference_cub", _COMPARED),)),
    Synthesised(records.DIFFERENCE_SCORES, (TableAnswer("judgement", "score_difference", (_SCORE,)),)),
    Synthesised(
        records.CLASS_DESCRIPTIONS, (TableAnswer("description", "class_description", ABOUT_CLASSES),), about="classes"
    ),
    Synthesised(
        records.CLASS_DIFFERENCES, (TableAnswer("difference", "class_difference", ABOUT_CLASSES),), about="classes"
    ),
)


@cache
def synthesised_tables() -> dict[str, Synthesised]:
    """All tables by name, sorted."""
    return {table.name: table for table in sorted(_TABLES, key=lambda table: table.name)}


def find_table(name: str) -> Synthesised:
    """The table of that name."""
    return synthesised_tables()[choose(list(synthesised_tables()), name, "synthesised table")]
