"""The synthetic dataset's checks of texts: faults, certain falsehood, strangers, and names of objects."""

from __future__ import annotations

import random
from itertools import product

from components.data.world.evaluation_text import plain_query, swapped
from components.data.world.fact_checks import FactChecks, find_fault, find_part_fault
from components.data.world.scenes import COUNTS, POSITIONS, RELATIONS, SIZES, Scene, Thing, draw_scenes

FACTS = FactChecks()
DOG_LEFT_OF_CAT = Scene("pair", "red", Thing("dog", "small"), Thing("cat", "large"), relation="left")
BUS_ABOVE_BUS_KEY = Scene("pair", "gray", Thing("bus", "large"), Thing("key", "large"), relation="above")
LEMON = Scene("single", "green", Thing("lemon", "small"), position="top left corner")
BELL = Scene("single", "blue", Thing("bell", "large"), position="center")
OWLS = Scene("group", "yellow", Thing("owl", "small"), count="three")
BEES = Scene("group", "green", Thing("bee", "small"), count="three")

TRUE = [
    (DOG_LEFT_OF_CAT, "A large cat right of a small dog, red background."),
    (DOG_LEFT_OF_CAT, "Scarlet backdrop: a tiny hound is to the left of one huge tabby."),
    (DOG_LEFT_OF_CAT, "To the right of a little pup sits a big kitty, on red."),
    (DOG_LEFT_OF_CAT, "IMG_7 small dog left of large cat red bg.jpg"),
    (BUS_ABOVE_BUS_KEY, "A huge key lies beneath a big coach, silver behind."),
    (BUS_ABOVE_BUS_KEY, "Below a large bus is a large key, gray."),
    (LEMON, "Emerald backdrop; the upper left corner keeps a tiny lemon."),
    (BELL, "A large bell in the center on blue."),
    (OWLS, "3 owls, yellow bg"),
]
FALSE = [
    (DOG_LEFT_OF_CAT, "object_missing", "A small dog left of a large cattle, red background."),
    # A word that training texts must not have.
    (DOG_LEFT_OF_CAT, "object_missing", "A small canine left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "object_repeated", "A small dog, a pup left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "object_added", "A small dog left of a large cat with a key, red background."),
    (DOG_LEFT_OF_CAT, "colour", "A small dog left of a large cat."),
    (DOG_LEFT_OF_CAT, "colour", "A small dog left of a large cat, red and green background."),
    (DOG_LEFT_OF_CAT, "size", "A dog left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "size", "A small large dog left of a large cat, red background."),
    (DOG_LEFT_OF_CAT, "relation", "A small dog above a large cat, red background."),
    (DOG_LEFT_OF_CAT, "relation", "A small dog and a large cat, red background."),
    (DOG_LEFT_OF_CAT, "relation", "Right of a large cat stands a small dog, red background."),
    (BUS_ABOVE_BUS_KEY, "relation", "Below a large key is a large bus, gray."),
    (LEMON, "position", "A small lemon in the top right corner, green background."),
    (LEMON, "position", "A small lemon in the left corner, green background."),
    (OWLS, "count", "Owls on a yellow background."),
    (OWLS, "count", "Three or four owls on a yellow background."),
    (OWLS, "object_added", "Three owls and a top hat on a yellow background."),
]
PARTS: list[tuple[Scene, str | None, str]] = [
    (DOG_LEFT_OF_CAT, None, "scarlet background"),
    (DOG_LEFT_OF_CAT, None, "a dog left of a cat"),
    (DOG_LEFT_OF_CAT, None, "two animals, one a dog"),
    (DOG_LEFT_OF_CAT, "size", "a small dog, a small cat"),
    (DOG_LEFT_OF_CAT, "colour", "a small dog on blue"),
    (DOG_LEFT_OF_CAT, "relation", "cat above dog"),
    (DOG_LEFT_OF_CAT, "count", "three dogs"),
    (DOG_LEFT_OF_CAT, "object_added", "a dog and a bus"),
    (DOG_LEFT_OF_CAT, "object_repeated", "a dog and a dog"),
    (DOG_LEFT_OF_CAT, "nothing", "two small things"),
    (LEMON, None, "lemon in the top corner"),
    (LEMON, "position", "lemon in the bottom left corner"),
    (OWLS, "count", "two owls"),
]


def test_faults_of_sentences() -> None:
    wrong = [text for scene, text in TRUE if find_fault(text, scene) is not None]
    wrong += [text for scene, text in TRUE if find_part_fault(text, scene) is not None]
    wrong += [text for scene, fault, text in FALSE if find_fault(text, scene) != fault]
    wrong += [text for scene, fault, text in PARTS if find_part_fault(text, scene) != fault]
    assert wrong == []


def _others(scene: Scene) -> list[Scene]:
    """Every scene of the same objects but `scene` itself."""
    colours, first = ("red", "blue", "gray"), scene.first.name
    if scene.kind == "group":
        every = [Scene("group", colour, scene.first, count=count) for colour, count in product(colours, COUNTS)]
    elif scene.second is None:
        every = [
            Scene("single", colour, Thing(first, size), position=position)
            for colour, size, position in product(colours, SIZES, POSITIONS)
        ]
    else:
        every = [
            Scene("pair", colour, Thing(first, one), Thing(scene.second.name, two), relation=relation)
            for colour, one, two, relation in product(colours, SIZES, SIZES, RELATIONS)
        ]
    return [other for other in every if other.canonical() != scene.canonical()]


def test_texts_of_other_scenes_are_false_and_those_that_leave_out_are_not() -> None:
    rng = random.Random(0)
    for scene in (DOG_LEFT_OF_CAT, LEMON, OWLS):
        for other in _others(scene):
            text = plain_query(other, rng)
            assert FACTS.tells_another(text, scene.to_json()), text
        assert len(_others(scene)) >= 7
    for _, scene in draw_scenes(3, {"train": 150, "val": 1, "test": 1}):
        query = plain_query(scene, rng)
        assert find_fault(query, scene) is None, scene
        assert not FACTS.tells_another(query, scene.to_json()), scene
        for kind, fault in (("relation", "relation"), ("attribute", "size")):
            other = swapped(scene, kind)
            if other is not None and other.canonical() != scene.canonical():
                text = plain_query(other, rng)
                assert find_fault(text, scene) == fault, scene
                assert FACTS.tells_another(text, scene.to_json())
    texts = ["A small dog left of a large cat.", "A dog left of a cat on red.", "A small dog and a large cat on red."]
    texts += ["A large dog left of a small bus on red.", "A large dog, red.", ""]
    assert [text for text in texts if FACTS.tells_another(text, DOG_LEFT_OF_CAT.to_json())] == []


def test_strangers_and_names_of_one_picture_alone() -> None:
    both = [DOG_LEFT_OF_CAT, BEES]
    train = Scene("pair", "red", Thing("train", "small"), Thing("bus", "large"), relation="left")
    shoes = Scene("group", "red", Thing("sneaker", "small"), count="two")
    rows = [
        (both, "A hound beside three little bees on scarlet, not green.", None),
        (both, "Two things on red, three on green.", None),
        (both, "A teddy bear beside a dog.", "object"),
        (both, "The dog is on purple.", "colour"),
        (both, "Four bees on green.", "count"),
        (both, "No dog is present.", None),
        (both, "A present for the dog.", "object"),
        (both, "Plum jam, a golden fleece and a pair of bees.", "colour"),
        ([BEES], "huge bees", "size"),
        ([BEES, BELL], "huge bees", None),
        # A word inside a longer one names nothing.
        ([train], "A steam engine near a coach.", None),
        ([shoes], "A running shoe.", None),
    ]
    assert [row for row in rows if FACTS.find_stranger(row[1], [scene.to_json() for scene in row[0]]) != row[2]] == []
    pair, other = DOG_LEFT_OF_CAT.to_json(), BEES.to_json()
    named = {"A hound on red.": True, "Tabbies everywhere.": True, "Three bees.": False, "Something on red.": False}
    assert {text: FACTS.names(text, pair, other) for text in named} == named
    with_dog = Scene("pair", "blue", Thing("dog", "large"), Thing("bus", "large"), relation="above").to_json()
    assert not FACTS.names("A dog on red.", pair, with_dog)
    assert FACTS.names("A cat on red.", pair, with_dog)
    assert FACTS.names("A dog on red.", pair, pair)


def test_a_comparison_of_sizes_must_be_shown_by_the_facts() -> None:
    dog, train = DOG_LEFT_OF_CAT, Scene("pair", "red", Thing("train", "large"), Thing("bus", "small"), relation="left")
    big = Scene("pair", "blue", Thing("dog", "large"), Thing("key", "large"), relation="left")
    rows = [
        (dog, big, "The dog of the second is larger than the dog of the first.", True),
        (dog, big, "The dog of the first is larger than the dog of the second.", False),
        (dog, big, "A dog is larger than the other dog.", False),
        (dog, LEMON, "The cat of the first is larger than the lemon in the second.", True),
        (dog, LEMON, "The lemon of the second is smaller than the cat in the first.", True),
        (dog, LEMON, "The lemon is bigger than the cat.", False),
        (dog, LEMON, "The dog is smaller than the lemon.", False),
        (dog, LEMON, "The dog and the cat are larger than the lemon.", False),
        (dog, train, "The cat and the train are larger than the bus.", False),
        (dog, train, "The hound is tinier than the train.", True),
        (dog, LEMON, "The cat in the first, in the second a larger lemon.", False),
        (dog, LEMON, "A larger one, the cat, and a lemon.", False),
        (dog, BEES, "The cat is larger than the three bees.", False),
        (dog, BEES, "A dog and a cat on red, three bees on green.", True),
    ]
    found = {text: FACTS.find_size_fault(text, one.to_json(), other.to_json()) for one, other, text, _ in rows}
    assert found == {text: None if right else "size" for _, _, text, right in rows}
