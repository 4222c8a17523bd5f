"""Checks of synthesised texts: of those for training, and of those about classes and queries of evaluation."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from components.captions.validation.rules.changes import (
    find_added_detail,
    find_changed_colour,
    find_changed_measure,
    find_changed_negation,
    find_lost_count,
    find_lost_detail,
    find_other_count,
)
from components.captions.validation.rules.numbers_and_names import find_added_name, find_lost_name
from components.captions.validation.rules.table import TextCheck, View, each, each_in_language, in_english
from components.captions.validation.rules.wording import find_echo, find_foreign, find_injection, prompt_phrases
from components.core.text import new_words, normalised
from components.core.text.languages import identified, word_count
from components.data.world.fact_checks import FactChecks


def by_facts(measure: Callable[..., str | None], *columns: str) -> Callable[[View], list[Any]]:
    """A measure by `measure(facts, text, *columns)` for each row; null without known facts."""

    def measured(view: View) -> list[Any]:
        facts = view.probes.facts
        if facts is None:
            return [None] * len(view.texts)
        rows = zip(view.texts, *(view.rows[column] for column in columns), strict=True)
        return [measure(facts, *row) for row in rows]

    return measured


def _copies(text: str, source: str) -> str | None:
    return "source" if normalised(text) == normalised(source) else None


def _questions(view: View) -> list[str]:
    """The source, or both captions, one to a line, if the task is about two."""
    if "other_caption" not in view.task.inputs:
        return view.sources
    pairs = zip(view.sources, view.rows["other_caption"], strict=True)
    return [f"{caption}\n{other}" for caption, other in pairs]


def _echoes(view: View) -> list[Any]:
    phrases, rows = prompt_phrases(view.task), zip(view.texts, _questions(view), view.languages, strict=True)
    return [find_echo(text, source, phrases, language) for text, source, language in rows]


def _injections(view: View) -> list[Any]:
    return [find_injection(text, source) for text, source in zip(view.texts, _questions(view), strict=True)]


def _stranger(facts: FactChecks, text: str, scene: str, other: str | None) -> str | None:
    return facts.find_stranger(text, [shown for shown in (scene, other) if shown is not None])


def _foreign(view: View) -> list[Any]:
    """The language of each text if it is not its caption's, or none of `validate.language` where that one is unsure."""
    allowed = view.probes.languages
    if len(allowed) < 2:
        return [find_foreign(text, allowed) for text in view.texts]
    rows = zip(view.texts, map(identified, view.sources), strict=True)
    return [find_foreign(text, (sure,) if sure in allowed else allowed) for text, sure in rows]


def _similarities(view: View) -> list[Any]:
    def measure(view: View) -> list[Any]:
        return list(view.probes.similarities(view.texts, view.sources))

    return measure(view) if view.probes.reads_all else in_english(measure)(view)


COMMON = (
    TextCheck("words", "length", each(lambda text, _: float(word_count(text))), "min_words", "max_words"),
    TextCheck(
        "tokens", "tokens", lambda view: list(view.probes.token_lengths(view.texts)), high="context_length", always=True
    ),
    TextCheck("copied", "copies", each(_copies)),
    TextCheck("echo", "echo", _echoes),
    TextCheck("leak", "leak", lambda view: list(map(view.probes.find_leak, view.texts)), always=True),
    TextCheck("injection", "injection", _injections, switch="reject_injections"),
    TextCheck("language", "language", _foreign, switch="language"),
    TextCheck(
        "similarity", "similarity", _similarities, "min_similarity", "max_similarity", switch="measure_similarity"
    ),
)
"""Length, the encoder's context, copies of the source, prompt echoes, evaluation leaks, prompt injections, language,
and similarity to the source."""

strangers = by_facts(_stranger, "facts", "other_facts")
"""The kind of thing that each text mentions and none of its pictures shows."""

FAITHFUL = TextCheck("fault", "fault", by_facts(FactChecks.find_fault, "facts"))
"""Describes the whole picture and nothing else."""

NO_STRANGER = TextCheck("stranger", "stranger", strangers)
"""Mentions only things that its pictures show: a denial of other things would be true."""

NEW_WORDS = TextCheck(
    "new_words", "few_new_words", each(lambda text, source: float(new_words(text, source))), "min_new_words"
)
"""Uses content words that its source does not have."""

KEPT = (
    TextCheck("lost_number", "lost_number", each_in_language(find_lost_count), switch="keep_numbers"),
    TextCheck("other_count", "other_count", each_in_language(find_other_count), switch="keep_numbers"),
    TextCheck("measure", "measure", each_in_language(find_changed_measure), switch="keep_numbers"),
    TextCheck("changed_colour", "changed_colour", each_in_language(find_changed_colour), switch="keep_colours"),
    TextCheck("changed_negation", "changed_negation", each_in_language(find_changed_negation), switch="keep_negations"),
    TextCheck("lost_name", "lost_name", in_english(each(find_lost_name)), switch="keep_names"),
    TextCheck("added_name", "added_name", in_english(each(find_added_name)), switch="keep_names"),
    TextCheck("lost_detail", "lost_detail", in_english(each(find_lost_detail)), switch="keep_details"),
    TextCheck("added_detail", "added_detail", in_english(each(find_added_detail)), switch="reject_added_details"),
)
"""Has the numbers, measures, colours, negations, names and details of its source, and no others; not for texts that
deny or swap something."""

UNSEEN = tuple(check for check in COMMON if check.column not in ("leak", "tokens"))
"""Checks of texts that are never trained on: these may repeat a benchmark, and the encoder cuts long ones, as in
PC-CLIP's code."""


def _unnamed(view: View) -> list[Any]:
    """`class`, or `first` or `second` of two, if a text does not name it."""
    columns = [name for name in view.task.inputs if name.endswith("class_name")]
    faults = ("class",) if len(columns) == 1 else ("first", "second")
    names = zip(*(view.rows[column] for column in columns), strict=True)
    return [
        next((fault for fault, name in zip(faults, named, strict=True) if not says_name(text, name)), None)
        for text, named in zip(view.texts, names, strict=True)
    ]


def says_name(text: str, name: str) -> bool:
    """Whether `text` has the last word of a class's name, in the singular or the plural.

    The last word is the kind: a text on "Le Conte's sparrow" may mention "the sparrow". The part of a name after a
    comma is ignored.
    """
    *_, last = name_words(name)
    return bool(forms(last) & set(re.findall(r"[^\W_]+", text.casefold())))


def name_words(name: str) -> list[str]:
    """The words of a name up to its first comma, in lower case, at least one; `TeddyBear` has two."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.partition(",")[0])
    return re.findall(r"[^\W_]+", spaced.casefold()) or [name.casefold()]


@cache
def forms(noun: str) -> frozenset[str]:
    """A noun, its singular and its plurals."""
    import inflect

    engine: Any = inflect.engine()
    forms = {noun, engine.plural_noun(noun), engine.singular_noun(noun) or noun}
    engine.classical(all=True)
    # "flamingoes" and "cacti", but writers also use "flamingos".
    return frozenset(forms | {engine.plural_noun(noun), f"{noun}s", f"{noun}es"})


ABOUT_CLASSES = (
    *(check for check in UNSEEN if check.column != "similarity"),
    TextCheck("unnamed", "unnamed", _unnamed),
)
"""Checks of a text about classes, which must name them; it means far more than the names do."""
