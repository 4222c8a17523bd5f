"""Short truths are true, half-truths say one false thing more, and full truths a true one in the same frame."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

from components.data.world.description.lexicon import word_pattern
from components.data.world.description.likeness import half_truth_rows
from components.data.world.description.scenes import Scene, Thing, draw_scenes
from components.validation.rules.world.facts import find_fault


@cache
def _told() -> list[tuple[Scene, str, str, str, str]]:
    scenes = [
        (str(number), scene) for number, (_, scene) in enumerate(draw_scenes(3, {"train": 1, "val": 1, "test": 300}))
    ]
    by_id = dict(scenes)
    return [(by_id[row[0]], *row[1:]) for row in half_truth_rows(scenes, random.Random(5))]  # type: ignore[misc]


def test_what_can_be_said_of_each_kind_of_scene() -> None:
    kinds = {(scene.kind, kind) for scene, *_, kind in _told()}
    assert kinds == {
        ("pair", "object"), ("pair", "relation"), ("pair", "background"), ("single", "background"),
        ("single", "position"), ("group", "background"),
    }  # fmt: skip


def test_by_hand() -> None:
    scenes = [("i", Scene("single", "red", Thing("dog", "small"), position="center"))]
    (red, center) = half_truth_rows(scenes, random.Random(0))
    assert (red[0], red[4], center[4]) == ("i", "background", "position")
    for row, truth in ((red, "a small dog on a red background"), (center, "a small dog in the center")):
        assert "small dog" in row[1]
        assert row[3] in {f"Anyone can make out {truth} here.", f"Plain to see is {truth}."}
        assert row[2] != row[3]
        assert row[1].split()[:3] == row[2].split()[:3] == row[3].split()[:3]


def _shown(text: str, scene: Scene) -> int:
    return sum(bool(word_pattern(name).search(text)) for name in scene.names)


def test_full_truths_are_true_and_half_truths_false_in_one_thing() -> None:
    for scene, truth, half, full, kind in _told():
        assert _shown(truth, scene) == 1, truth
        assert len(truth) < min(len(half), len(full))
        assert _shown(full, scene) == 1 + (kind in {"object", "relation"}), full
        assert _shown(half, scene) == 1 + (kind == "relation"), half
        if kind in {"relation", "position"}:
            # The check of facts wants the background told, too.
            told = f" The background is {scene.colour}."
            assert find_fault(full + told, scene) is None, full
            assert find_fault(half + told, scene) == kind, half
        if kind == "background":
            assert f"on a {scene.colour} background" in full
            assert f"on a {scene.colour} background" not in half


def test_either_object_comes_first() -> None:
    pairs = [(scene.first.name, truth) for scene, truth, *_ in _told() if scene.kind == "pair"]
    first = Counter(bool(word_pattern(name).search(truth)) for name, truth in pairs)
    assert 0.4 < first[True] / first.total() < 0.6
