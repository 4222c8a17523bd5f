"""Pairs of synthetic scenes differ in one fact, which their sentences state."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest

from components.data.world.description.scenes import Scene, Thing, draw_scenes
from components.experiments.parts.synthetic_changes import FRAMES, KINDS_OF, change_of, synthetic_pairs

DOG, CAT = Thing("dog", "small"), Thing("cat", "large")
SCENES = {
    "pair": Scene("pair", "red", DOG, CAT, "left"),
    "single": Scene("single", "blue", DOG, position="center"),
    "group": Scene("group", "green", DOG, count="two"),
}
FACTS = {
    "background": {"colour"}, "object": {"first"}, "size": {"first"}, "position": {"position"},
    "relation": {"relation"}, "count": {"count"},
}  # fmt: skip


def test_exactly_one_fact_changes_and_every_kind_comes() -> None:
    rng, seen = random.Random(0), Counter[str]()
    for _, scene in draw_scenes(3, {"train": 300, "val": 1, "test": 1}):
        change = change_of(scene, rng)
        before, after = asdict(change.before), asdict(change.after)
        assert {name for name in before if before[name] != after[name]} == FACTS[change.kind]
        assert change.before.canonical() == scene.canonical()
        if change.kind in ("object", "size"):
            same = "size" if change.kind == "object" else "name"
            assert getattr(change.before.first, same) == getattr(change.after.first, same)
        seen[change.kind] += 1
    assert set(seen) == set(FRAMES) == {kind for kinds in KINDS_OF.values() for kind in kinds}
    assert min(seen.values()) > 3


@pytest.mark.parametrize(
    ("scene", "kind", "expected"),
    [
        ("single", "size", {"the dog became large", "the dog is large now and was small before",
                            "the small dog has turned into a large one"}),
        ("group", "count", {"there are three dogs now instead of two", "there are four dogs now instead of two"}),
        ("pair", "relation", {"the dog moved from left of the cat to right of it",
                              "the cat moved from right of the dog to left of it"}),
    ],
)  # fmt: skip
def test_sentences_state_the_change(scene: str, kind: str, expected: set[str]) -> None:
    changes = [change_of(SCENES[scene], random.Random(seed)) for seed in range(60)]
    found = {sentence for change in changes if change.kind == kind for sentence in change.sentences}
    assert found == expected if kind == "size" else found >= expected


def test_the_same_seed_draws_the_same_pairs_and_pictures_differ() -> None:
    counts = {"train": 6, "val": 2, "test": 4}
    one, repeated, other = (synthetic_pairs(seed, counts) for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert [len(split) for split in (one.train, one.val, one.test)] == [6, 2, 4]
    drawn = [
        [(pair.sentences, pair.before.stamp, pair.after.stamp) for pair in found.train] for found in (one, repeated)
    ]
    assert drawn[0] == drawn[1]
    assert all(before != after for _, before, after in drawn[0])
    with one.train[0].before.open() as image:
        assert np.asarray(image).shape == (64, 64, 3)
    assert [pair.sentences for pair in one.test] != [pair.sentences for pair in other.test]
