"""Finds changes of a paraphrase: of counts, measures, prices, negations and colours in any language, and of details.

Words are those of `words.yaml`. A language model that rewrites a short caption often decorates it, or says less, and it
does not see the picture: details are colours, sizes, garments, breeds, materials, body parts and places. A word of
`details.yaml` needs a word of the same group in the other text, or one of the group's evidence.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from components.captions.validation.rules.numbers_and_names import (
    find_lost_number,
    number_words,
    numbers_of,
    standing_digits,
)
from components.core.text.languages import ENGLISH, words_of

_DIGITS = r"\d+(?:[.,]\d+)*"
_BY = r"\s?(?:[x\u00d7*]|by|auf|par|por|per|op|na|\u043d\u0430|mal)\s?"
_SIZE = "size"
"""The unit of two numbers with a sign such as "x" between and no unit after them: of a picture, it may be left out."""
_MAY_GO = {_SIZE, "percent", "dollars", "euros", "pounds", "yen", "won", "rupees", "roubles", "zloty", "lira"}
"""Units of measures that a paraphrase may leave out, but not change."""
_CLOSE = 0.04
"""Largest relative difference of a converted measure."""
_HALF = re.compile(
    r"\b(?:half(?: an?)?|halbe[nrs]?|demi|medio|meio|mezzo|mezzo|halve|p\u00f3\u0142|yar\u0131m)[ -](?=\w)"
)
_SINGLE = re.compile(
    r"^\W*(?:(?:just |only )?(?:one|a single)|1) (?!of|and|or|in|on|is|has|with)\w+"
    r"(?!.*\b(?:another|one|other|second|third)\b)"
)
_NO_DENIAL = re.compile(
    r"\b(?:nothing (?:but|more|else|other)|no (?:longer|two)|not (?:only|one|far|much|yet))\b|\bno\. ?\d"
)
_IS_NOT = re.compile(r"\b(?:is|are|was|were|does|do|did|has|have)(?: not|n['\u2019]t)\b")
_SEVERAL = re.compile(r"\b(?:several|many|multiple|numerous|dozens|hundreds)\b")


@dataclass(frozen=True)
class Amount:
    """A number in digits: the values that it may be (1.200 is 1200 or 1.2), its unit if it has one, and its size."""

    values: frozenset[float]
    unit: str | None
    size: float = 1.0

    def is_same(self, other: Amount) -> bool:
        """Whether both may be one amount, in the same or in another size of unit, or one is without a unit."""
        if self.unit != other.unit and self.unit is not None and other.unit is not None:
            return False
        if self.unit != other.unit or self.size == other.size:
            return bool(self.values & other.values)
        return any(
            abs(one * self.size / (two * other.size) - 1) < _CLOSE for one in self.values for two in other.values
        )


def find_changed_measure(text: str, source: str, language: str = ENGLISH) -> str | None:
    """`lost` if `text` lacks a measure of `source`, `changed` if it has one that `source` lacks; None without either.

    >>> find_changed_measure("A sack that holds 5 kilograms", "1.5 kg bag of rice")
    'lost'
    >>> find_changed_measure("A coat for $900", "Coat for $50"), find_changed_measure("1500 g of rice", "1.5 kg rice")
    ('changed', None)
    """
    has, had = (list(_amounts(one)) for one in (text, source))
    said, told = (
        [Amount(frozenset([float(number)]), None) for number in _said(one, language)] for one in (text, source)
    )
    for amount in had:
        if amount.unit is not None and amount.unit not in _MAY_GO and not any(map(amount.is_same, (*has, *said))):
            return "lost"
    added = [amount for amount in has if not any(map(amount.is_same, (*had, *told)))]
    if any(amount.unit is not None for amount in added):
        return "changed"
    lost = [amount for amount in had if not any(map(amount.is_same, (*has, *said)))]
    return "changed" if added and lost else None


def find_lost_count(text: str, source: str, language: str = ENGLISH) -> str | None:
    """`digits` or `word` if a count of `source` is neither in digits nor in words in `text`, else None."""
    # A measure may be converted.
    source = _amount_pattern().sub(lambda found: " | " if found["after"] else found[0], _plain(source))
    if language == ENGLISH:
        return find_lost_number(text, source)
    held = _all(text, language)
    if any(number not in held for number in standing_digits(source)):
        return "digits"
    return "word" if any(number not in held for number in _words(source, language)) else None


def find_other_count(text: str, source: str, language: str = ENGLISH) -> str | None:
    """`count` if `text` counts something that `source`, which counts, does not; None without it.

    >>> find_other_count("Nine dogs", "1 dog"), find_other_count("Several hounds", "One dog on grass")
    ('count', 'count')
    """
    counts = [*_words(source, language), *standing_digits(source)]
    if not counts and not _SINGLE.search(source.casefold()):
        return None
    known = _all(source, language) | {value for one in _amounts(source) for value in one.values}
    if max({*_words(text, language), *standing_digits(text)} - known, default=0) > (sum(counts) + 1 if counts else 1):
        return "count"
    return (
        "count" if not counts and _SEVERAL.search(text.casefold()) and not _SEVERAL.search(source.casefold()) else None
    )


def find_changed_negation(text: str, source: str, language: str = ENGLISH) -> str | None:
    """`lost` or `added` if one of the texts denies something and the other does not; None without it."""
    deny, absent = _pattern("negations", language), _pattern("absences", language)
    if deny is None or absent is None:
        return None
    denies = [bool(deny.search(_NO_DENIAL.sub(" ", one.casefold()))) for one in (text, source)]
    if denies[0] == denies[1] or absent.search((source if denies[0] else text).casefold()):
        return None
    if denies[0]:
        # A thing that is not there has many names, as "flat" for "no air".
        return None if language == ENGLISH and not _IS_NOT.search(text.casefold()) else "added"
    return "lost"


def find_changed_colour(text: str, source: str, language: str = ENGLISH) -> str | None:
    """`colour` if `text` has another colour in place of one of `source`; None without it."""
    if language == ENGLISH:
        changed = bool(find_lost_detail(text, source, "colour") and find_lost_detail(source, text, "colour"))
    else:
        has, had = (set(_found("colours", one, language)) for one in (text, source))
        changed = bool(had - has and has - had)
    return "colour" if changed else None


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


def _words(text: str, language: str) -> list[int]:
    """The numbers in words of `language`, from two on."""
    if language == ENGLISH:
        return list(number_words(text))
    return [int(number) for number in _found("numbers", text, language)]


def _said(text: str, language: str) -> set[float]:
    """The numbers that are not in digits; one, which an article says too, is always among them."""
    return {1.0, *_all(text, language)} - {value for one in _amounts(text) for value in one.values if value != 1}


def _all(text: str, language: str) -> set[int]:
    """All whole numbers, in digits or words."""
    if language == ENGLISH:
        return numbers_of(text)
    return {*_words(text, language), *(int(value) for one in _amounts(text) for value in one.values)}


def _found(kind: str, text: str, language: str) -> Iterator[Any]:
    """The keys of a kind of `words.yaml` whose words are in a text, each once."""
    for key in _read()[kind].get(language, {}):
        pattern = _pattern(kind, language, key)
        if pattern is not None and pattern.search(text.casefold()):
            yield key


@cache
def _pattern(kind: str, language: str, key: int | str | None = None) -> re.Pattern[str] | None:
    """Matches a word of `words.yaml`; None where the language has none."""
    words = _read()[kind].get(language)
    if words is None:
        return None
    counters = _read()["counters"].get(language, "")
    found = (words if key is None else words[key]).replace("C)", f"{counters})")
    return re.compile(found if language in ("ja", "zh") else rf"(?<!\w)(?:{found})(?!\w)")


@cache
def _read() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("words.yaml").read_text("utf-8"))
    return found


def _amounts(text: str) -> Iterator[Amount]:
    """The numbers in digits of a text, with their units."""
    for found in _amount_pattern().finditer(_plain(text)):
        numbers = re.findall(_DIGITS, found["numbers"])
        unit, size = _unit_of((found["after"] or found["before"] or "").strip(" -"))
        for number in numbers:
            if values := _values(number):
                yield Amount(values, unit or (_SIZE if len(numbers) > 1 else None), size)


def _plain(text: str) -> str:
    return _HALF.sub("0.5 ", unicodedata.normalize("NFKC", text).casefold())


def _values(number: str) -> frozenset[float]:
    """The values that a number in digits may be; none for a code or a date.

    >>> sorted(_values("1.200")), sorted(_values("2,5")), sorted(_values("1.2.3"))
    ([1.2, 1200.0], [2.5], [])
    """
    values = set()
    if re.fullmatch(r"\d{1,9}|\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3})+", number):
        values.add(float(re.sub("[.,]", "", number)))
    if re.fullmatch(r"\d{1,9}[.,]\d+", number):
        values.add(float(number.replace(",", ".")))
    return frozenset(values - {0.0})


@cache
def _amount_pattern() -> re.Pattern[str]:
    units = "|".join(words for sizes in _read()["units"].values() for words in sizes.values())
    return re.compile(
        rf"(?<![\w.,])(?P<before>(?:[$\u20ac\u00a3\u00a5\u20a9\u20b9\u20bd\u20ba]|usd|eur|gbp|rs)\s?)?"
        rf"(?P<numbers>{_DIGITS}(?:{_BY}{_DIGITS})*)(?P<after>[\s-]?(?:{units})(?![a-z\u00df-\u024f\u0400-\u04ff]))?"
    )


@cache
def _unit_of(word: str) -> tuple[str | None, float]:
    """The kind of a unit and its size in the smallest one of its kind; no kind for another word."""
    for unit, sizes in _read()["units"].items():
        for size, words in sizes.items():
            if re.fullmatch(words, word):
                return unit, float(size)
    return None, 1.0


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
