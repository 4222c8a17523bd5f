"""Captions are true of their scene, negations false, each cue in its own words."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache

import pytest

from components.data.world.evaluation_text import CUES, evaluation_text, negation_text
from components.data.world.fact_checks import find_fault
from components.data.world.lexicon import TIERS, load_lexicon, plural, with_article, word_pattern
from components.data.world.scenes import Scene, draw_scenes

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
        text = negation_text(scene, rng, cue)
        yield scene, text.caption, text.negation


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
