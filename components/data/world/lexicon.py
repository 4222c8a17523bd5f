"""The words of synthetic pictures, in four tiers by their use in training."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Literal, get_args

import yaml

Tier = Literal["common", "rare", "paraphrase", "unseen"]
TIERS: tuple[Tier, ...] = get_args(Tier)


@dataclass(frozen=True)
class Concept:
    """An object or attribute, and its word in each tier."""

    name: str
    words: dict[Tier, str]
    art: str = ""

    def word(self, tier: Tier) -> str:
        """The word of `tier`, or the common word if the tier has none."""
        return self.words.get(tier, self.words["common"])


@dataclass(frozen=True)
class Lexicon:
    """Objects by common name, attributes by name, and the colours as RGB."""

    objects: dict[str, Concept]
    attributes: dict[str, Concept]
    colours: dict[str, tuple[int, int, int]] = field(default_factory=dict)

    def concept(self, name: str) -> Concept:
        """The object or attribute called `name`."""
        return self.objects.get(name) or self.attributes[name]

    def tier_words(self, tier: Tier) -> Iterator[str]:
        """Every word that belongs to `tier`."""
        for concept in (*self.objects.values(), *self.attributes.values()):
            if tier in concept.words:
                yield concept.words[tier]


@cache
def load_lexicon() -> Lexicon:
    """Read `lexicon.yaml` beside this module."""
    raw = yaml.safe_load(files(__package__).joinpath("lexicon.yaml").read_text("utf-8"))
    objects = {}
    for row in raw["objects"]:
        words = {tier: row[tier] for tier in TIERS if tier in row}
        objects[row["common"]] = Concept(row["common"], words, row["art"])
    attributes = {name: Concept(name, dict(words)) for name, words in raw["attributes"].items()}
    colours = {name: (rgb[0], rgb[1], rgb[2]) for name, rgb in raw["colours"].items()}
    return Lexicon(objects, attributes, colours)


_PLURALS = {
    "sheep": "sheep", "fish": "fish", "deer": "deer", "mouse": "mice", "grapes": "grapes",
    "fries": "fries", "scissors": "scissors", "shears": "shears", "glasses": "glasses",
    "eyeglasses": "eyeglasses", "spectacles": "spectacles", "jeans": "jeans", "denims": "denims",
    "trout": "trout", "swine": "swine", "dairy cattle": "dairy cattle", "french fries": "french fries",
    "aircraft": "aircraft", "spacecraft": "spacecraft", "rotorcraft": "rotorcraft",
    "cup of joe": "cups of joe", "bird of prey": "birds of prey", "ear of corn": "ears of corn",
    "loaf": "loaves", "flamingo": "flamingoes", "gelato": "gelatoes", "potato": "potatoes", "snowman": "snowmen",
}  # fmt: skip
"""Exceptions of the rules below. A test compares them with inflect, whose import takes three seconds."""
_REGULAR = ((re.compile(r"(s|x|z|ch|sh)$"), r"\1es"), (re.compile(r"(?<=[^aeiou])y$"), "ies"), (re.compile(r"$"), "s"))
_CONSONANT = re.compile(r"[^aeiou]|ewe", re.IGNORECASE)
"""The beginning of words with the article "a"."""


@cache
def plural(noun: str) -> str:
    """English plural of a lexicon noun."""
    if noun in _PLURALS:
        return _PLURALS[noun]
    ending, plural_ending = next(rule for rule in _REGULAR if rule[0].search(noun))
    return ending.sub(plural_ending, noun, count=1)


@cache
def with_article(phrase: str) -> str:
    """A phrase of lexicon words with "a" or "an" in front."""
    return f"{'a' if _CONSONANT.match(phrase) else 'an'} {phrase}"


@cache
def word_pattern(word: str) -> re.Pattern[str]:
    """Matches `word` or its plural as whole words, whatever the case."""
    forms = {word, plural(word)} if not word[0].isdigit() else {word}
    body = "|".join(re.escape(form).replace(r"\ ", r"[\s_-]+") for form in sorted(forms, key=len, reverse=True))
    return re.compile(rf"(?<![a-z0-9])(?:{body})(?![a-z0-9])", re.IGNORECASE)
