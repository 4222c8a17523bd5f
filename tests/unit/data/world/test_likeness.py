"""Sentences that share facts, and half-truths: short truths are true, a half-truth adds one false thing."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache

import pytest
from scipy.stats import spearmanr

from components.data.world.evaluation_text import QUERIES
from components.data.world.fact_checks import evaluation_frames, find_fault
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


def test_every_degree_occurs_about_equally_often() -> None:
    kinds = Counter((scene.kind, round(row[2], 2)) for scene, row in zip(_scenes(), _rows(), strict=True))
    degrees = {"pair": [0, 0.09, 0.2, 0.33, 0.5, 0.71, 1], "single": [0, 0.14, 0.33, 0.6, 1], "group": [0, 0.2, 0.5, 1]}
    assert set(kinds) == {(kind, degree) for kind, found in degrees.items() for degree in found}
    assert max(kinds["pair", degree] for degree in degrees["pair"]) < 2 * min(
        kinds["pair", degree] for degree in degrees["pair"]
    )


def test_a_share_of_one_is_the_same_scene_and_less_is_not() -> None:
    checked = 0
    for scene, (first, second, share, tier) in zip(_scenes(), _rows(), strict=True):
        # The check of facts does not know words of the last tier.
        if tier != "unseen":
            assert find_fault(first, scene) is None, first
            assert (find_fault(second, scene) is None) == (share == 1), second
            checked += 1
    assert checked > 300


def test_half_of_the_sentences_are_in_other_words() -> None:
    plain = evaluation_frames()[: sum(map(len, QUERIES.values()))]
    sentences = [text for row in _rows() for text in row[:2]]
    found = sum(any(pattern.search(text) for pattern in plain) for text in sentences)
    assert found == len(sentences) / 2
    assert set(Counter(row[3] for row in _rows())) == {"common", "rare", "paraphrase", "unseen"}


def test_shared_words_do_not_give_the_share() -> None:
    words = [[set(re.findall(r"\w+", text.lower())) for text in row[:2]] for row in _rows()]
    overlap = [len(first & second) / len(first | second) for first, second in words]
    assert spearmanr(overlap, [row[2] for row in _rows()]).statistic < 0.5


@cache
def _truths() -> list[tuple[Scene, str, str, str, str]]:
    scenes = {str(number): scene for number, scene in enumerate(_scenes()[:300])}
    rows = half_truth_rows(list(scenes.items()), random.Random(5))
    return [(scenes[row[0]], *row[1:]) for row in rows]  # type: ignore[misc]


def test_each_kind_of_scene_has_its_half_truths() -> None:
    kinds = {(scene.kind, kind) for scene, *_, kind in _truths()}
    assert kinds == {
        ("pair", "object"), ("pair", "relation"), ("pair", "background"), ("single", "background"),
        ("single", "position"), ("group", "background"),
    }  # fmt: skip


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
    first_of_pair = []
    for scene, truth, half, full, kind in _truths():
        assert _shown(truth, scene) == 1, truth
        if scene.kind == "pair":
            first_of_pair.append(bool(word_pattern(scene.first.name).search(truth)))
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
    assert 0.4 < sum(first_of_pair) / len(first_of_pair) < 0.6, "either object comes first"
