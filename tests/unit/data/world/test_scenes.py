"""Scenes: the same for the same seed, no fact shared between splits, held-out pairs never trained."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.data.world.lexicon import load_lexicon
from components.data.world.scenes import (
    COUNTS,
    INVERSE,
    POSITIONS,
    RELATIONS,
    SIZES,
    Scene,
    Thing,
    draw_scenes,
    pair_is_held_out,
)

NUMBERS = {"train": 1500, "val": 60, "test": 200}
NAMES = st.sampled_from(sorted(load_lexicon().objects))
COLOURS = st.sampled_from(sorted(load_lexicon().colours))
THINGS = st.builds(Thing, NAMES, st.sampled_from(SIZES))
SCENES = st.one_of(
    st.builds(Scene, st.just("pair"), COLOURS, THINGS, THINGS, st.sampled_from(RELATIONS)),
    st.builds(Scene, st.just("single"), COLOURS, THINGS, position=st.sampled_from(POSITIONS)),
    st.builds(Scene, st.just("group"), COLOURS, THINGS, count=st.sampled_from(COUNTS)),
)


@pytest.fixture(scope="module")
def splits() -> dict[str, list[Scene]]:
    found = defaultdict(list)
    for split, scene in draw_scenes(0, NUMBERS):
        found[split].append(scene)
    return dict(found)


def test_counts_and_seed(splits: dict[str, list[Scene]]) -> None:
    assert {split: len(scenes) for split, scenes in splits.items()} == NUMBERS
    again = [scene for split, scene in draw_scenes(0, NUMBERS) if split == "val"]
    other = [scene for split, scene in draw_scenes(1, NUMBERS) if split == "val"]
    assert again == splits["val"]
    assert other != splits["val"]


def test_no_two_splits_share_a_scene(splits: dict[str, list[Scene]]) -> None:
    facts = {split: {scene.canonical() for scene in scenes} for split, scenes in splits.items()}
    assert not facts["train"] & facts["test"]
    assert not facts["train"] & facts["val"]
    assert not facts["val"] & facts["test"]
    assert len(facts["test"]) == NUMBERS["test"]


def test_held_out_pairs_are_never_trained_and_are_half_of_the_test_pairs(splits: dict[str, list[Scene]]) -> None:
    assert not any(scene.kind == "pair" and pair_is_held_out(*scene.names) for scene in splits["train"])
    pairs = [scene for scene in splits["test"] if scene.kind == "pair"]
    assert 0.6 < len(pairs) / len(splits["test"]) < 0.8
    assert 0.4 < sum(pair_is_held_out(*scene.names) for scene in pairs) / len(pairs) < 0.6
    assert {scene.kind for scene in splits["train"]} == {"pair", "single", "group"}
    assert all(len(set(scene.names)) == len(scene.names) for scene in splits["train"])


@given(NAMES, NAMES)
def test_held_out_does_not_depend_on_the_order(one: str, other: str) -> None:
    assert pair_is_held_out(one, other) == pair_is_held_out(other, one)


@given(SCENES)
def test_json_round_trip_and_canonical_form_do_not_depend_on_the_side(scene: Scene) -> None:
    assert Scene.from_json(scene.to_json()) == scene
    assert scene.canonical().canonical() == scene.canonical()
    if scene.second is not None:
        mirrored = Scene("pair", scene.colour, scene.second, scene.first, INVERSE[scene.relation])
        assert mirrored.canonical() == scene.canonical()
