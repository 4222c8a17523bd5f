"""Normalised texts and content words, for comparing two texts."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from components.core.text.languages import words_of


def normalised(text: str) -> str:
    """`text` without case, punctuation and white space.

    >>> normalised("A red bus, parked.") == normalised("a RED bus parked")
    True
    """
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(letter for letter in folded if letter.isalnum())


def common_texts(pairs: Iterable[tuple[str, str]], least: float) -> set[str]:
    """The normalised texts, of pairs of a text and its subject, that `least` or more different subjects have.

    >>> common_texts([("A dog.", "1"), ("a dog", "2"), ("a cat", "3"), ("a cat", "3")], 2)
    {'adog'}
    """
    subjects: dict[str, set[str]] = {}
    for text, subject in pairs:
        subjects.setdefault(normalised(text), set()).add(subject)
    return {text for text, found in subjects.items() if text and len(found) >= least}


def content_words(text: str) -> set[str]:
    """The distinct words of `text` in lower case, without function words.

    >>> sorted(content_words("The dog and the red ball"))
    ['ball', 'dog', 'red']
    """
    return set(words_of(text)) - _function_words()


def new_words(text: str, source: str) -> int:
    """The number of content words of `text` that are not in `source`."""
    return len(content_words(text) - set(words_of(source)))


def overlap(text: str, source: str) -> float:
    """Share of the content words of `text` that are also in `source`; zero if `text` has none.

    >>> overlap("a red ball", "the ball is blue")
    0.5
    """
    words = content_words(text)
    return len(words & content_words(source)) / max(1, len(words))


@cache
def _function_words() -> frozenset[str]:
    return frozenset(json.loads(files(__package__).joinpath("function_words.json").read_text("utf-8")))
