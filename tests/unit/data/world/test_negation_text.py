"""Captions and alt-texts are true of their scene; negations are false, each cue in its own words."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache

import pytest

from components.data.world.alt_text import alt_text
from components.data.world.evaluation_text import CUES, evaluation_text, negation_text
from components.data.world.fact_checks import find_fault
from components.data.world.lexicon import TIERS, load_lexicon, plural, with_article, word_pattern
from components.data.world.scenes import Scene, Thing, draw_scenes

WORDS = {"no": r"\bno\b", "not": r"\bnot\b", "without": r"\bwithout\b", "not_but": r"\bnot .* but\b"}
ANY_CUE = re.compile(r"\b(?:no|not|without)\b", re.IGNORECASE)


@cache
def _scenes() -> tuple[Scene, ...]:
    return tuple(scene for _, scene in draw_scenes(11, {"train": 1, "val": 1, "test": 250}))


def _names_shown(text: str) -> set[str]:
    """Objects that `text` names by their common word; of two words at one place the longer counts."""
    found = set()
    for name in sorted(load_lexicon().objects, key=len, reverse=True):
        if word_pattern(name).search(text):
            found.add(name)
            text = word_pattern(name).sub("~", text)
    return found


def _affirmed(negation: str) -> str:
    """The sentence that a negation with `no` or `not` denies."""
    text = re.sub(r"\bno ", "", negation, flags=re.IGNORECASE)
    text = re.sub(r"\bnot (?:a single |any )", "", text, flags=re.IGNORECASE)
    return text.replace("does not show", "shows").replace("does show any", "shows")


def _negations(cue: str) -> Iterator[tuple[Scene, str, str]]:
    rng = random.Random(f"cue-{cue}")
    for scene in _scenes():
        yield scene, *negation_text(scene, rng, cue)


@pytest.mark.parametrize("cue", CUES)
def test_captions_are_true_and_negations_have_their_cue(cue: str) -> None:
    for scene, caption, negation in _negations(cue):
        assert find_fault(caption, scene) is None, caption
        assert not ANY_CUE.search(caption)
        assert len(ANY_CUE.findall(negation)) == 1, negation
        assert re.search(WORDS[cue], negation, re.IGNORECASE), negation
        assert caption != negation


@pytest.mark.parametrize("cue", ["no", "not"])
def test_the_denied_sentence_is_true(cue: str) -> None:
    for scene, _, negation in _negations(cue):
        affirmed = _affirmed(negation)
        assert not ANY_CUE.search(affirmed), affirmed
        # To deny a group's things at all denies that there are so many.
        fault = "count" if scene.kind == "group" else None
        assert find_fault(affirmed, scene) == fault, (negation, affirmed)


def test_the_object_left_out_is_there_and_is_either_of_a_pair() -> None:
    for scene, _, negation in _negations("without"):
        head, left_out = negation.split(" without ")
        (name,) = _names_shown(left_out)
        assert name in scene.names, negation
        assert _names_shown(head) == set(scene.names) - {name}, negation
        if scene.second is None:
            continue
        # "A large cat without a small dog left of it": with the pronoun's own words the part left out is a caption.
        owner = next(thing for thing in (scene.first, scene.second) if thing.name != name)
        caption = re.sub(r"\bit\b", with_article(f"{owner.size} {owner.name}"), left_out, count=1)
        assert find_fault(f"On {scene.colour}, {caption}", scene) is None, negation


def test_another_object_replaces_one_of_the_scene() -> None:
    for scene, _, negation in _negations("not_but"):
        denied, absent = re.search(r"not (.*) but ((?:an? |\w+ )\w+ ?.*)", negation, re.IGNORECASE).groups()  # type: ignore[union-attr]
        (name,) = _names_shown(denied)
        assert name in scene.names, negation
        (other,) = _names_shown(absent) - set(scene.names)
        back = negation.replace(f"not {denied} but ", "").replace(f"Not {denied} but ", "")
        number = plural if scene.kind == "group" else str
        assert find_fault(back.replace(number(other), number(name)), scene) is None, negation


@pytest.mark.parametrize("tier", TIERS)
def test_paraphrases_are_true(tier: str) -> None:
    rng = random.Random(f"tier-{tier}")
    for scene in _scenes():
        text = evaluation_text(scene, rng, tier)  # type: ignore[arg-type]
        assert find_fault(_in_known_words(text.paraphrase), scene) is None, text.paraphrase


def _in_known_words(text: str) -> str:
    """`text` with words of the last tier, which the check of facts does not know, replaced by common ones."""
    lexicon = load_lexicon()
    for concept in (*lexicon.objects.values(), *lexicon.attributes.values()):
        if "unseen" in concept.words:
            word, common = concept.words["unseen"], concept.words["common"]
            text = word_pattern(plural(word)).sub(plural(common), text) if word.isalpha() else text
            text = word_pattern(word).sub(common, text)
    return text


SINGLE = Scene("single", "red", Thing("dog", "small"), position="center")


def test_rare_words_have_their_share() -> None:
    def texts(share: float, count: int) -> list[str]:
        return [alt_text(SINGLE, random.Random(seed), share) for seed in range(count)]

    assert texts(0.25, 40) == texts(0.25, 40)
    assert all("dog" in text for text in texts(0, 40))
    assert all("pup" in text for text in texts(1, 40))
    assert 0.15 < sum("pup" in text for text in texts(0.25, 400)) / 400 < 0.35


def test_texts_are_true_in_common_and_rare_words() -> None:
    later = [word_pattern(word) for tier in ("paraphrase", "unseen") for word in load_lexicon().tier_words(tier)]
    rng = random.Random(0)
    for _, scene in draw_scenes(1, {"train": 200, "val": 1, "test": 1}):
        text = alt_text(scene, rng, 0.5)
        assert not [pattern.pattern for pattern in later if pattern.search(text)], text
        assert scene.kind == "pair" or find_fault(text.replace("_", " "), scene) is None, text


def test_a_pair_is_described_from_both_sides() -> None:
    scene = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
    texts = [alt_text(scene, random.Random(seed), 0.0).replace("_", " ") for seed in range(200)]
    assert any("small dog left of large cat" in text for text in texts)
    assert any("large cat right of small dog" in text for text in texts)
    assert not any("large cat left of" in text or "small dog right of" in text for text in texts)
