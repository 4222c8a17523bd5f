"""Checks that synthesised texts go through: those that train, and those about the classes and queries of evaluation."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from components.core.words import new_words, normalised
from components.validation.checks.numbers_and_names import find_lost_name, find_lost_number
from components.validation.checks.wording import find_echo, find_foreign, find_injection, prompt_phrases
from components.validation.table import Check, View, each


def _copies(text: str, source: str) -> str | None:
    return "source" if normalised(text) == normalised(source) else None


def _asked_about(view: View) -> list[str]:
    """Both captions where the task asks about two, one to a line, else the source."""
    if "other_caption" not in view.task.inputs:
        return view.sources
    return [f"{one}\n{other}" for one, other in zip(view.sources, view.rows["other_caption"], strict=True)]


def _echoes(view: View) -> list[Any]:
    phrases = prompt_phrases(view.task)
    return [find_echo(text, source, phrases) for text, source in zip(view.texts, _asked_about(view), strict=True)]


def _injections(view: View) -> list[Any]:
    return [find_injection(text, source) for text, source in zip(view.texts, _asked_about(view), strict=True)]


def _faults(view: View) -> list[Any]:
    facts = view.probes.facts
    if facts is None:
        return [None] * len(view.texts)
    return [facts.find_fault(text, scene) for text, scene in zip(view.texts, view.rows["facts"], strict=True)]


COMMON = (
    Check("words", "length", each(lambda text, _: float(len(text.split()))), "min_words", "max_words"),
    Check(
        "tokens", "tokens", lambda view: list(view.probes.token_lengths(view.texts)), high="context_length", always=True
    ),
    Check("copied", "copies", each(_copies)),
    Check("echo", "echo", _echoes),
    Check("leak", "leak", lambda view: [view.probes.find_leak(text) for text in view.texts], always=True),
    Check("injection", "injection", _injections, switch="reject_injections"),
    Check("language", "language", each(lambda text, _: find_foreign(text)), switch="language"),
    Check(
        "similarity",
        "similarity",
        lambda view: list(view.probes.similarities(view.texts, view.sources)),
        "min_similarity",
        "max_similarity",
        switch="measure_similarity",
    ),
)
"""Length, the encoder's context, copies of the source, prompt echoes, evaluation leaks, orders to the language model,
the language, the band of meaning."""


def strangers(view: View) -> list[Any]:
    """What each text speaks of that none of its pictures shows; all null where the world does not know."""
    facts = view.probes.facts
    if facts is None:
        return [None] * len(view.texts)
    scenes = view.rows[["facts", "other_facts"]].itertuples(index=False)
    return [
        facts.find_stranger(text, [scene for scene in pair if scene is not None])
        for text, pair in zip(view.texts, scenes, strict=True)
    ]


FAITHFUL = Check("fault", "fault", _faults)
"""Says what the picture shows, all of it and nothing else, where the world knows."""

NO_STRANGER = Check("stranger", "stranger", strangers)
"""Speaks of nothing that its pictures do not show; to deny that would be true."""

NEW_WORDS = Check(
    "new_words", "few_new_words", each(lambda text, source: float(new_words(text, source))), "min_new_words"
)
"""Uses content words that its source does not have."""

KEPT = (
    Check("lost_number", "lost_number", each(find_lost_number), switch="keep_numbers"),
    Check("lost_name", "lost_name", each(find_lost_name), switch="keep_names"),
)
"""Has the numbers and the names of its source; a sentence that denies or swaps something need not."""


UNSEEN = tuple(check for check in COMMON if check.column != "leak")
"""What texts must fulfil that no training sees: these may say what a benchmark says."""


def _unnamed(view: View) -> list[Any]:
    """`class`, or `first` or `second` of two, where a text does not name it."""
    columns = [name for name in view.task.inputs if name.endswith("class_name")]
    faults = ("class",) if len(columns) == 1 else ("first", "second")
    names = zip(*(view.rows[column] for column in columns), strict=True)
    return [
        next((fault for fault, name in zip(faults, named, strict=True) if not says_name(text, name)), None)
        for text, named in zip(view.texts, names, strict=True)
    ]


def says_name(text: str, name: str) -> bool:
    """Whether `text` has the last word of a class's name, in the singular or the plural.

    That is what it is a kind of: a text on "Le Conte's sparrow" may speak of "the sparrow". What follows a comma in a
    name tells where or what for.
    """
    *_, last = name_words(name)
    return bool(forms(last) & set(re.findall(r"[^\W_]+", text.casefold())))


def name_words(name: str) -> list[str]:
    """The words of a name up to its first comma, in lower case; `TeddyBear` has two. There is at least one."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.partition(",")[0])
    return re.findall(r"[^\W_]+", spaced.casefold()) or [name.casefold()]


@cache
def forms(noun: str) -> frozenset[str]:
    """A noun's singular and its plurals, the noun itself among them."""
    import inflect

    engine: Any = inflect.engine()
    forms = {noun, engine.plural_noun(noun), engine.singular_noun(noun) or noun}
    engine.classical(all=True)
    # "flamingoes" and "cacti", but writers have "flamingos" too.
    return frozenset(forms | {engine.plural_noun(noun), f"{noun}s", f"{noun}es"})


ABOUT_CLASSES = (
    *(check for check in UNSEEN if check.column != "similarity"),
    Check("unnamed", "unnamed", _unnamed),
)
"""What a text about classes must fulfil: it names them, and means far more than the names do."""
