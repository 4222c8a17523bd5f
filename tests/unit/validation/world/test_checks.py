"""What the embedded world knows about a text: certainly false, about strangers, naming its objects."""

from __future__ import annotations

import random
from itertools import product

import pytest

from components.data.world.description.evaluation_text import plain_query, swapped
from components.data.world.description.scenes import COUNTS, POSITIONS, RELATIONS, SIZES, Scene, Thing, draw_scenes
from components.validation.world.checks import find_stranger, names, tells_another

PAIR = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
SINGLE = Scene("single", "blue", Thing("bus", "large"), position="top left corner")
GROUP = Scene("group", "green", Thing("bee", "small"), count="three")


def _others(scene: Scene) -> list[Scene]:
    """Every scene of the same objects but `scene` itself."""
    colours = ("red", "blue", "gray")
    if scene.kind == "group":
        every = [Scene("group", colour, scene.first, count=count) for colour, count in product(colours, COUNTS)]
    elif scene.second is None:
        every = [
            Scene("single", colour, Thing(scene.first.name, size), position=position)
            for colour, size, position in product(colours, SIZES, POSITIONS)
        ]
    else:
        one, two = scene.first.name, scene.second.name
        every = [
            Scene("pair", colour, Thing(one, first), Thing(two, second), relation=relation)
            for colour, first, second, relation in product(colours, SIZES, SIZES, RELATIONS)
        ]
    return [other for other in every if other.canonical() != scene.canonical()]


@pytest.mark.parametrize("scene", [PAIR, SINGLE, GROUP], ids=lambda scene: str(scene.kind))
def test_what_is_true_of_another_scene_is_certainly_false(scene: Scene) -> None:
    rng = random.Random(0)
    for other in _others(scene):
        text = plain_query(other, rng)
        assert tells_another(text, scene.to_json()), text
    assert len(_others(scene)) >= 7


def test_what_is_true_is_not_false() -> None:
    rng = random.Random(1)
    for _, scene in draw_scenes(3, {"train": 100, "val": 0, "test": 0}):
        assert not tells_another(plain_query(scene, rng), scene.to_json())
        for what in ("relation", "attribute"):
            other = swapped(scene, what)
            if other is not None and other.canonical() != scene.canonical():
                assert tells_another(plain_query(other, rng), scene.to_json())


@pytest.mark.parametrize(
    "text",
    [
        "A small dog left of a large cat.",
        "A dog left of a cat on red.",
        "A small dog and a large cat on red.",
        "A large dog left of a small bus on red.",
        "A large dog, red.",
        "",
    ],
)
def test_what_leaves_something_out_is_not_certainly_false(text: str) -> None:
    assert not tells_another(text, PAIR.to_json())


@pytest.mark.parametrize(
    ("text", "stranger"),
    [
        ("A hound beside three little bees on scarlet, not green.", None),
        ("Two things on red, three on green.", None),
        ("A teddy bear beside a dog.", "object"),
        ("The dog is on purple.", "colour"),
        ("Four bees on green.", "count"),
        ("No dog is present.", None),
        ("A present for the dog.", "object"),
        ("Plum jam, a golden fleece and a pair of bees.", "colour"),
    ],
)
def test_strangers(text: str, stranger: str | None) -> None:
    assert find_stranger(text, [PAIR.to_json(), GROUP.to_json()]) == stranger


def test_a_size_that_no_picture_has() -> None:
    assert find_stranger("huge bees", [GROUP.to_json()]) == "size"
    assert find_stranger("huge bees", [GROUP.to_json(), SINGLE.to_json()]) is None


def test_a_word_inside_a_longer_one_is_not_named() -> None:
    train = Scene("pair", "red", Thing("train", "small"), Thing("bus", "large"), relation="left")
    assert find_stranger("A steam engine near a coach.", [train.to_json()]) is None
    assert (
        find_stranger("A running shoe.", [Scene("group", "red", Thing("sneaker", "small"), count="two").to_json()])
        is None
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [("A hound on red.", True), ("Tabbies everywhere.", True), ("Three bees.", False), ("Something on red.", False)],
)
def test_objects_are_named_by_any_known_word(text: str, *, named: bool) -> None:
    assert names(text, PAIR.to_json(), GROUP.to_json()) is named


def test_an_object_of_both_pictures_tells_them_not_apart() -> None:
    other = Scene("pair", "blue", Thing("dog", "large"), Thing("bus", "large"), relation="above")
    assert not names("A dog on red.", PAIR.to_json(), other.to_json())
    assert names("A cat on red.", PAIR.to_json(), other.to_json())
    assert names("A dog on red.", PAIR.to_json(), PAIR.to_json())
