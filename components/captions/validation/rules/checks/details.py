"""Finds details that a paraphrase adds or loses: colours, sizes, garments, breeds, materials, body parts, places.

A language model that rewrites a short caption often decorates it, or says less, and it does not see the picture. A word
of `details.yaml` needs a word of the same group in the other text, or one of the group's evidence.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml

from components.captions.validation.rules.checks.numbers_and_names import find_lost_number
from components.core.text.languages import words_of


def find_lost_detail(text: str, source: str, kind: str | None = None) -> str | None:
    """The kind of the first detail of `source`, of `kind` if given, that `text` does not have; None without one.

    >>> find_lost_detail("a girl rides a sled", "a girl in purple rides a sled")
    'colour'
    """
    return _first_missing(source, text, kind)


def find_added_detail(text: str, source: str) -> str | None:
    """The kind of the first detail of `text` that `source` does not have, or `number`; None without one.

    >>> find_added_detail("A guy stands in front of a tall building", "A man is standing before a building.")
    'size'
    >>> find_added_detail("a kid on a large couch", "a child on a big sofa") is None
    True
    """
    return _first_missing(text, source) or ("number" if find_lost_number(source, text) else None)


def _first_missing(text: str, other: str, kind: str | None = None) -> str | None:
    has = set(words_of(other))
    for word in words_of(text):
        groups = [group for group in _groups().get(word, ()) if kind in (None, group[0])]
        if groups and not any(group & has for _, group in groups):
            return groups[0][0]
    return None


@cache
def _groups() -> dict[str, list[tuple[str, frozenset[str]]]]:
    """Word -> the kinds and groups that it belongs to; a group holds its evidence too."""
    found: dict[str, list[tuple[str, frozenset[str]]]] = {}
    details: dict[str, list[str]] = yaml.safe_load(files(__package__).joinpath("details.yaml").read_text("utf-8"))
    for kind, groups in details.items():
        for group in groups:
            words, _, evidence = group.partition(":")
            whole = frozenset([*words.split(), *evidence.split()])
            for word in words.split():
                found.setdefault(word, []).append((kind, whole))
    return found
