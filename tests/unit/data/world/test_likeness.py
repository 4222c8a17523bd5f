"""Sentences that share facts, and half-truths: short truths are true, a half-truth adds one false thing."""

from __future__ import annotations

import random
from functools import cache

import pytest

from components.data.world.fact_checks import find_fault
from components.data.world.lexicon import word_pattern
from components.data.world.likeness import changed, half_truth_rows, likeness_rows, shared_facts
from components.data.world.scenes import Scene, Thing, draw_scenes

PAIR = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), "left")
SINGLE = Scene("single", "red", Thing("dog", "small"), position="center")
GROUP = Scene("group", "red", Thing("dog", "small"), count="two")


@cache
def _scenes() -> tuple[Scene, ...]:
    return tuple(scene for split, scene in draw_scenes(3, {"train": 1, "val": 1, "test": 600}) if split == "test")


@cache
def _rows() -> list[tuple[str, str, float, str]]:
    return likeness_rows(_scenes(), random.Random(5))


@pytest.mark.parametrize(
    ("scene", "parts", "share"),
    [
        # Six facts: background, two objects, their sizes, and where the one stands of the other.
        (PAIR, (), 1), (PAIR, ("colour",), 5 / 7), (PAIR, ("relation",), 5 / 7), (PAIR, ("second size",), 5 / 7),
        (PAIR, ("first size", "second size"), 4 / 8), (PAIR, ("first",), 3 / 9), (PAIR, ("first", "second"), 1 / 11),
        (PAIR, ("first", "second", "colour"), 0),
        # Four: background, object, its size, its place.
        (SINGLE, ("position",), 3 / 5), (SINGLE, ("first",), 1 / 7),
        # Three, for sentences do not tell the size of a group's things.
        (GROUP, ("count",), 2 / 4), (GROUP, ("first",), 1 / 5),
    ],
)  # fmt: skip
def test_shares_by_hand(scene: Scene, parts: tuple[str, ...], share: float) -> None:
    for seed in range(5):
        other = changed(scene, parts, random.Random(seed))
        assert shared_facts(scene, other) == shared_facts(other.mirrored(), scene) == pytest.approx(share)


def test_a_share_of_one_is_the_same_scene_and_less_is_not() -> None:
    checked = 0
    for scene, (first, second, share, tier) in zip(_scenes(), _rows(), strict=True):
        # The check of facts does not know words of the last tier.
        if tier != "unseen":
            assert find_fault(first, scene) is None, first
            assert (find_fault(second, scene) is None) == (share == 1), second
            checked += 1
    assert checked > 300


@cache
def _truths() -> list[tuple[Scene, str, str, str, str]]:
    scenes = {str(number): scene for number, scene in enumerate(_scenes()[:300])}
    rows = half_truth_rows(list(scenes.items()), random.Random(5))
    return [(scenes[row[0]], *row[1:]) for row in rows]  # type: ignore[misc]


def test_half_truths_by_hand() -> None:
    (red, center) = half_truth_rows([("i", SINGLE)], random.Random(0))
    assert (red[0], red[4], center[4]) == ("i", "background", "position")
    for row, truth in ((red, "a small dog on a red background"), (center, "a small dog in the center")):
        assert "small dog" in row[1]
        assert row[3] in {f"Anyone can make out {truth} here.", f"Plain to see is {truth}."}
        assert row[2] != row[3]
        assert row[1].split()[:3] == row[2].split()[:3] == row[3].split()[:3]


def _shown(text: str, scene: Scene) -> int:
    return sum(bool(word_pattern(name).search(text)) for name in scene.names)


def test_full_truths_are_true_and_half_truths_false_in_one_thing() -> None:
    for scene, truth, half, full, kind in _truths():
        assert _shown(truth, scene) == 1, truth
        assert len(truth) < min(len(half), len(full))
        assert _shown(full, scene) == 1 + (kind in {"object", "relation"}), full
        assert _shown(half, scene) == 1 + (kind == "relation"), half
        if kind in {"relation", "position"}:
            # The check of facts requires the background, too.
            background = f" The background is {scene.colour}."
            assert find_fault(full + background, scene) is None, full
            assert find_fault(half + background, scene) == kind, half
        if kind == "background":
            assert f"on a {scene.colour} background" in full
            assert f"on a {scene.colour} background" not in half
