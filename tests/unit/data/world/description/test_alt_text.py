"""Alt-texts are true, come in many frames, and use rare words as often as told."""

from __future__ import annotations

import random

import pytest

from components.data.world.alt_text import alt_text
from components.data.world.description.lexicon import load_lexicon, word_pattern
from components.data.world.description.scenes import Scene, Thing, draw_scenes
from components.validation.rules.world.facts import find_fault

SINGLE = Scene("single", "red", Thing("dog", "small"), position="center")


def test_same_generator_same_text() -> None:
    assert alt_text(SINGLE, random.Random(1), 0.5) == alt_text(SINGLE, random.Random(1), 0.5)


@pytest.mark.parametrize(("share", "word"), [(0.0, "dog"), (1.0, "pup")])
def test_rare_word_share_at_its_ends(share: float, word: str) -> None:
    texts = [alt_text(SINGLE, random.Random(seed), share) for seed in range(40)]
    assert all(word in text for text in texts)


def test_rare_word_share_in_between() -> None:
    texts = [alt_text(SINGLE, random.Random(seed), 0.25) for seed in range(400)]
    assert 0.15 < sum("pup" in text for text in texts) / len(texts) < 0.35


def test_only_common_and_rare_words() -> None:
    later = [word_pattern(word) for tier in ("paraphrase", "unseen") for word in load_lexicon().tier_words(tier)]
    rng = random.Random(0)
    for _, scene in draw_scenes(1, {"train": 200, "val": 1, "test": 1}):
        text = alt_text(scene, rng, 0.5)
        assert not [pattern.pattern for pattern in later if pattern.search(text)], text


def test_groups_and_singles_are_true() -> None:
    rng = random.Random(0)
    for _, scene in draw_scenes(2, {"train": 200, "val": 1, "test": 1}):
        if scene.kind != "pair":
            text = alt_text(scene, rng, 0.2).replace("_", " ")
            assert find_fault(text, scene) is None, text


def test_a_pair_is_told_from_both_sides() -> None:
    scene = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
    texts = [alt_text(scene, random.Random(seed), 0.0).replace("_", " ") for seed in range(200)]
    assert any("small dog left of large cat" in text for text in texts)
    assert any("large cat right of small dog" in text for text in texts)
    assert not any("large cat left of" in text or "small dog right of" in text for text in texts)
