"""Numbers and names that mean something must be kept; those of noisy alt-texts need not."""

from __future__ import annotations

import random

import inflect
from hypothesis import given, settings
from hypothesis import strategies as st

from components.captions.validation.rules.numbers_and_names import find_added_name, find_lost_name, find_lost_number
from components.data.world.alt_text import alt_text
from components.data.world.scenes import draw_scenes

WORDS = inflect.engine()


def test_a_number_is_kept_in_digits_or_words() -> None:
    rows = [
        ("3 dogs on grass", "Three dogs are on the lawn."),
        ("three dogs on grass", "3 dogs are on the lawn."),
        ("two cats", "A pair of cats."),
        ("two cats", "Both cats."),
        ("four violins", "A string quartet."),
        ("12 eggs", "A dozen eggs."),
        ("24 eggs", "Two dozen eggs."),
        ("36 eggs", "3 dozen eggs."),
        ("six dogs", "Half a dozen dogs."),
        ("6 dogs", "A half-dozen dogs."),
        ("twenty one balloons", "21 balloons."),
        ("21 balloons", "Twenty-one balloons."),
        ("105 steps", "One hundred and five steps."),
        ("a hundred balloons", "100 balloons."),
        ("1,200 runners", "1200 runners."),
        ("two doors", "A two-part doorway."),
        ("one dog", "A dog."),
    ]
    assert [row for row in rows if find_lost_number(row[1], row[0]) is not None] == []


def test_a_number_is_lost() -> None:
    rows = [
        ("3 dogs on grass", "Some dogs are on the lawn.", "digits"),
        ("three dogs on grass", "Dogs are on the lawn.", "word"),
        ("three dogs on grass", "Four dogs are on the lawn.", "word"),
        ("22 men", "Two men.", "digits"),
        ("six dogs", "A dozen dogs.", "word"),
        ("24 eggs", "A dozen eggs.", "digits"),
        ("12 eggs", "Half a dozen eggs.", "digits"),
        ("two eggs", "Two dozen eggs.", "word"),
        ("two men", "Twenty-two men.", "word"),
        ("2 men", "12 men.", "digits"),
        ("a bus on line 42", "A bus.", "digits"),
        ("Boeing 747 landing", "An airliner is landing.", "digits"),
        ("1,200 runners", "Many runners.", "digits"),
        ("dog.jpg: 3 dogs and two cats", "Three dogs and cats.", "word"),
    ]
    assert [row for row in rows if find_lost_number(row[1], row[0]) != row[2]] == []


def test_numbers_that_count_nothing_may_go() -> None:
    rows = [
        "photo-5029.png >> large bomb right of large horse >> red",
        "picture 6901: large key / large bicycle, blue",
        "large couch, gray background - stock photo E19",
        "Stock Photo - 1234",
        "[R67] spiders ; free download",
        "3_dogs on grass.png",
        "dog #5 @best100",
        "dog B36 SKU 88-1234",
        "dogs (3)",
        "dog 300 x 200",
        "dog 1920x1080",
        "parade, 12 May 2019",
        "parade 2019-05-12 14:30",
        "Ford Mustang 1967",
        "bag $20, 50% off, 19.99",
        "call 555 1234",
        "https://example.com/3 dog",
        "ref no. 7 dog",
        "code 00123 dog 12345678",
        "two-tone car, three-legged chair",
        "a cat rests below a hat, with blue behind the two.",
        "9" * 5000,
    ]
    assert [text for text in rows if find_lost_number("Something else altogether.", text)] == []


@settings(max_examples=200)
@given(number=st.integers(2, 1000), other=st.integers(2, 1000))
def test_a_number_in_words_is_the_same_in_digits_and_no_other(number: int, other: int) -> None:
    said = WORDS.number_to_words(str(number))
    for source, text in ((f"{number} dogs", f"There are {said} dogs."), (f"{said} dogs", f"There are {number} dogs.")):
        assert find_lost_number(text, source) is None
    if other != number:
        assert find_lost_number(f"There are {WORDS.number_to_words(str(other))} dogs.", f"{number} dogs") == "digits"


def test_a_name_is_kept() -> None:
    rows = [
        ("a view of the Eiffel Tower at night", "The Eiffel tower after dark."),
        ("a man wearing Nike's shoes", "A man in nike shoes."),
        ("people in front of the Café de Flore", "People outside cafe de flore."),
        ("a walk through London", "Walking in London's streets."),
        ("a photo of two Labradors playing", "A labrador plays with another one."),
    ]
    assert [row for row in rows if find_lost_name(row[1], row[0]) is not None] == []


def test_a_name_is_lost() -> None:
    rows = [
        ("a view of the Eiffel Tower at night", "A tower after dark."),
        ("a view of the Eiffel Tower at night", "Eiffel's work after dark."),
        ("The Eiffel Tower at night", "A tower after dark."),
        ("a man in Paris, France", "A man in Paris."),
        ("tourists in front of the Brandenburg Gate", "Tourists before a gate."),
        ("a woman in a Jean-Luc dress", "A woman in a dress by Luc."),
        ("IMG_3.jpg a walk through London", "A walk through a city."),
    ]
    assert [row for row in rows if find_lost_name(row[1], row[0]) != "name"] == []


def test_a_name_is_added() -> None:
    rows = {
        ("Sony headphones in black", "Black headphones by Bose"): "name",
        ("Sony headphones in black", "Bose headphones in black"): "name",
        ("Sony headphones in black", "Black Bose headphones"): "name",
        ("Sony headphones in black", "Black headphones by Sony"): None,
        ("Children and a dog", "Kids and a dog"): None,
        ("Two men", "Both men"): None,
        ("a man in Paris", "A man in London"): "name",
        ("indian women with phones", "Women from India with phones"): None,
        ("LED mirror", "A mirror with LEDs"): None,
        ("a dog and a flying disc", "A dog with a Frisbee"): None,
        ("a large turtle on red", "A huge Tortoise walks on red"): None,
        ("Large owl on red", "Huge owl on red"): None,
        ("sony headphones", "Headphones by Sony"): None,
    }
    assert {row: find_added_name(row[1], row[0]) for row in rows} == rows


def test_capitals_that_name_nothing_may_go() -> None:
    rows = [
        "Large Red Dog On Blue Background",
        "Vintage Wooden Chair for sale",
        "Golden Gate Bridge, San Francisco",
        "BUY NOW!! two fries - green print X80",
        "IMG_7 small dog left of large cat red bg.jpg",
        "photo-5029.png >> large bomb >> red",
        "Dog on grass. Cat on a sofa: Bird in a tree",
        "a dog in December on a Monday",
        "dog - Stock Photo, Getty Images",
        "a woman in a T-shirt in the USA",
        "I think I'm happy here",
        "Photo: dog (Large) [Red]",
        "",
    ]
    assert [text for text in rows if find_lost_name("something else altogether", text)] == []


def test_no_alt_text_of_the_synthetic_dataset_has_names_or_other_numbers_than_its_counts() -> None:
    rng = random.Random(0)
    for _, scene in draw_scenes(5, {"train": 300, "val": 0, "test": 0}):
        caption = alt_text(scene, rng, 0.04)
        count = {"two": "two", "three": "three", "four": "four"}.get(scene.count or "", "")
        assert find_lost_name("", caption) is None
        assert find_lost_number(f"There are {count}.", caption) is None, caption
