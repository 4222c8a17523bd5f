"""Checks of texts that only evaluation uses: about classes and queries."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from components.validation.checks.general import COMMON
from components.validation.table import Check, View

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
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.partition(",")[0])
    words = re.findall(r"[^\W_]+", spaced.casefold()) or [name.casefold()]
    return bool(_forms(words[-1]) & set(re.findall(r"[^\W_]+", text.casefold())))


@cache
def _forms(noun: str) -> frozenset[str]:
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
