"""Alt-texts are true, come in many frames, and use rare words as often as set."""

from __future__ import annotations

import random

from components.data.world.alt_text import alt_text
from components.data.world.fact_checks import find_fault
from components.data.world.lexicon import load_lexicon, word_pattern
from components.data.world.scenes import Scene, Thing, draw_scenes

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
