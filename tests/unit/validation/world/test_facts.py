"""Sentences judged by hand against `find_fault`: what it accepts, and what it calls each fault."""

from __future__ import annotations

import random

import pytest

from components.data.world.description.evaluation_text import plain_query, swapped
from components.data.world.description.scenes import Scene, Thing, draw_scenes
from components.validation.world.facts import find_fault, find_part_fault

DOG_LEFT_OF_CAT = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
BUS_ABOVE_BUS_KEY = Scene("pair", "gray", Thing("bus", "large"), Thing("key", "large"), relation="above")
LEMON = Scene("single", "green", Thing("lemon", "small"), position="top left corner")
BELL = Scene("single", "blue", Thing("bell", "large"), position="center")
OWLS = Scene("group", "yellow", Thing("owl", "small"), count="three")

TRUE = [
    (DOG_LEFT_OF_CAT, "A small dog left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "A large cat right of a small dog, red background."),
    (DOG_LEFT_OF_CAT, "Scarlet backdrop: a tiny hound is to the left of one huge tabby."),
    (DOG_LEFT_OF_CAT, "To the right of a little pup sits a big kitty, on red."),
    (DOG_LEFT_OF_CAT, "Left of a large cat stands a small dog; the background is red."),
    (DOG_LEFT_OF_CAT, "IMG_7 small dog left of large cat red bg.jpg"),
    (BUS_ABOVE_BUS_KEY, "A large bus above a large key on gray."),
    (BUS_ABOVE_BUS_KEY, "A huge key lies beneath a big coach, silver behind."),
    (BUS_ABOVE_BUS_KEY, "Over a big key hangs a huge bus, grey ground."),
    (BUS_ABOVE_BUS_KEY, "Below a large bus is a large key, gray."),
    (LEMON, "A small lemon in the top left corner, green background."),
    (LEMON, "Emerald backdrop; the upper left corner keeps a tiny lemon."),
    (BELL, "A large bell in the center on blue."),
    (BELL, "In the middle hangs a huge bell, all azure."),
    (OWLS, "Three owls on a yellow background."),
    (OWLS, "A trio of owls before a golden backdrop."),
    (OWLS, "3 owls, yellow bg"),
]
FALSE = [
    (DOG_LEFT_OF_CAT, "object_missing", "A small dog on a red background."),
    (DOG_LEFT_OF_CAT, "object_missing", "A small dog left of a large animal, red background."),
    (DOG_LEFT_OF_CAT, "object_missing", "A small dog left of a large cattle, red background."),
    (DOG_LEFT_OF_CAT, "object_repeated", "A small dog, a pup left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "object_added", "A small dog left of a large cat with a key, red background."),
    (DOG_LEFT_OF_CAT, "object_added", "A small dog left of a large cat near two buses, red."),
    (DOG_LEFT_OF_CAT, "colour", "A small dog left of a large cat."),
    (DOG_LEFT_OF_CAT, "colour", "A small dog left of a large cat, blue background."),
    (DOG_LEFT_OF_CAT, "colour", "A small dog left of a large cat, red and green background."),
    (DOG_LEFT_OF_CAT, "size", "A large dog left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "size", "A dog left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "size", "A small large dog left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "relation", "A small dog right of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "relation", "A large cat left of a small dog, red background."),
    (DOG_LEFT_OF_CAT, "relation", "A small dog above a large cat, red background."),
    (DOG_LEFT_OF_CAT, "relation", "A small dog and a large cat, red background."),
    (DOG_LEFT_OF_CAT, "relation", "Right of a large cat stands a small dog, red background."),
    (BUS_ABOVE_BUS_KEY, "relation", "A large key above a large bus, gray."),
    (BUS_ABOVE_BUS_KEY, "relation", "Below a large key is a large bus, gray."),
    (LEMON, "position", "A small lemon in the top right corner, green background."),
    (LEMON, "position", "A small lemon in the left corner, green background."),
    (LEMON, "position", "A small lemon, green background."),
    (BELL, "position", "A large bell in the bottom left corner on blue."),
    (BELL, "size", "A tiny bell in the center on blue."),
    (OWLS, "count", "Two owls on a yellow background."),
    (OWLS, "count", "Owls on a yellow background."),
    (OWLS, "count", "Three or four owls on a yellow background."),
    (OWLS, "colour", "Three owls on a purple background."),
    (OWLS, "object_added", "Three owls and a top hat on a yellow background."),
]


@pytest.mark.parametrize(("scene", "text"), TRUE)
def test_true_sentence(scene: Scene, text: str) -> None:
    assert find_fault(text, scene) is None


@pytest.mark.parametrize(("scene", "fault", "text"), FALSE)
def test_false_sentence(scene: Scene, fault: str, text: str) -> None:
    assert find_fault(text, scene) == fault


def test_last_tier_words_are_not_known() -> None:
    assert find_fault("A small canine left of a large cat, red background.", DOG_LEFT_OF_CAT) == "object_missing"


def test_plain_queries_are_true_and_swapped_ones_false() -> None:
    rng = random.Random(0)
    for _, scene in draw_scenes(3, {"train": 150, "val": 1, "test": 1}):
        assert find_fault(plain_query(scene, rng), scene) is None, scene
        for kind, fault in (("relation", "relation"), ("attribute", "size")):
            other = swapped(scene, kind)
            if other is not None:
                assert find_fault(plain_query(other, rng), scene) == fault, scene


PARTS: list[tuple[Scene, str | None, str]] = [
    (DOG_LEFT_OF_CAT, None, "a small dog"),
    (DOG_LEFT_OF_CAT, None, "a dog"),
    (DOG_LEFT_OF_CAT, None, "scarlet background"),
    (DOG_LEFT_OF_CAT, None, "a dog left of a cat"),
    (DOG_LEFT_OF_CAT, None, "two animals, one a dog"),
    (DOG_LEFT_OF_CAT, "size", "a large dog"),
    (DOG_LEFT_OF_CAT, "size", "a small dog, a small cat"),
    (DOG_LEFT_OF_CAT, "colour", "a small dog on blue"),
    (DOG_LEFT_OF_CAT, "relation", "a dog right of a cat"),
    (DOG_LEFT_OF_CAT, "relation", "cat above dog"),
    (DOG_LEFT_OF_CAT, "count", "three dogs"),
    (DOG_LEFT_OF_CAT, "object_added", "a dog and a bus"),
    (DOG_LEFT_OF_CAT, "object_repeated", "a dog and a dog"),
    (DOG_LEFT_OF_CAT, "nothing", "two small things"),
    (LEMON, None, "lemon in the top corner"),
    (LEMON, "position", "lemon in the bottom left corner"),
    (LEMON, "position", "a small lemon in the center"),
    (OWLS, None, "three owls"),
    (OWLS, "count", "two owls"),
]


@pytest.mark.parametrize(("scene", "fault", "text"), PARTS)
def test_parts_of_a_scene(scene: Scene, fault: str | None, text: str) -> None:
    assert find_part_fault(text, scene) == fault


@pytest.mark.parametrize(("scene", "text"), TRUE)
def test_a_whole_scene_has_no_false_part(scene: Scene, text: str) -> None:
    assert find_part_fault(text, scene) is None
