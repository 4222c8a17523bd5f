"""Counts, names, measures, prices, negations, colours and details are kept, in any language; noise need not be."""

from __future__ import annotations

import random

import inflect
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.captions.validation.rules.changes import (
    find_added_detail,
    find_changed_colour,
    find_changed_measure,
    find_changed_negation,
    find_lost_count,
    find_lost_detail,
    find_other_count,
)
from components.captions.validation.rules.numbers_and_names import find_added_name, find_lost_name, find_lost_number
from components.data.world.alt_text import alt_text
from components.data.world.scenes import draw_scenes

WORDS = inflect.engine()


def test_a_number_is_kept_or_lost() -> None:
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


def test_a_name_is_kept_lost_or_added() -> None:
    rows = [
        ("a view of the Eiffel Tower at night", "The Eiffel tower after dark."),
        ("a man wearing Nike's shoes", "A man in nike shoes."),
        ("people in front of the Café de Flore", "People outside cafe de flore."),
        ("a walk through London", "Walking in London's streets."),
        ("a photo of two Labradors playing", "A labrador plays with another one."),
    ]
    assert [row for row in rows if find_lost_name(row[1], row[0]) is not None] == []
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


CHECKS = (find_changed_measure, find_changed_negation, find_changed_colour, find_other_count, find_lost_count)
CHANGED = {
    "en": [
        ("1.5 kg bag of rice", "A sack that holds 5 kilograms"),
        ("Rice 2,5 kg", "5 kilos of rice"),
        ("5 kg of rice", "A bag of 1.5 kg of rice"),
        ("Table 80 x 120 cm", "A table of 200 by 300 centimetres"),
        ("Table 80x120", "Table 200 by 300"),
        ("Coat for $50", "A coat for $900"),
        ("Coat for $50", "A coat for 50 euros"),
        ("Jacket, 50% off", "Jacket at 20 % off"),
        ("100 pcs nail set", "one thousand nails of 100 mm"),
        ("Phone with 64 GB", "A phone with 128 GB"),
        ("One dog", "Several hounds"),
        ("1 dog", "Nine dogs"),
        ("Two dogs", "A pair of dogs and five cats"),
        ("The dog is not on the sofa", "A dog sits upon the couch"),
        ("The dog is on the sofa", "A dog isn't on the couch"),
        ("A red car", "A blue automobile"),
    ],
    "de": [
        ("Drei Hunde", "Zwei Hunde"),
        ("Reis 2,5 kg", "5 Kilo Reis"),
        ("Mantel für 50 €", "Mantel für 900 Euro"),
        ("Ein rotes Auto", "Ein blauer Wagen"),
        ("Der Hund ist nicht auf dem Sofa", "Ein Hund sitzt auf der Couch"),
    ],
    "fr": [
        ("Trois chiens", "Deux chiens"),
        ("Une voiture rouge", "Une auto bleue"),
        ("Le chien n'est pas sur le canapé", "Un chien est assis sur le sofa"),
    ],
    "es": [("Tres perros", "Dos perros"), ("Un coche rojo", "Un auto azul"), ("El perro no corre", "El perro corre")],
    "pt": [("Três cães", "Dois cães"), ("Um carro vermelho", "Um carro azul"), ("O cão não corre", "O cão corre")],
    "it": [("Tre cani", "Due cani"), ("Una macchina rossa", "Un'auto blu"), ("Il cane non corre", "Il cane corre")],
    "nl": [("Drie honden", "Twee honden"), ("Een rode auto", "Een blauwe wagen"), ("Hij rent niet", "Hij rent")],
    "pl": [("Trzy psy", "Dwa psy"), ("Czerwony samochód", "Niebieskie auto"), ("Pies nie biegnie", "Pies biegnie")],
    "tr": [("Üç köpek", "İki köpek"), ("Kırmızı araba", "Mavi araç"), ("Köpek evde değil", "Köpek evde")],
    "ru": [("Три собаки", "Две собаки"), ("Красная машина", "Синий автомобиль"), ("Она не бежит", "Она бежит")],
    "zh": [("三只狗", "两只狗"), ("一辆红色的车", "蓝色的汽车"), ("狗没有跑", "狗在跑"), ("大米2.5公斤", "5公斤大米")],
    "ja": [("三匹の犬", "二匹の犬"), ("赤い車", "青い自動車"), ("犬は走っていない", "犬が走る")],
    "ko": [("세 마리의 개", "두 마리의 개"), ("빨간 자동차", "파란 차"), ("개가 없다", "개가 있다")],
    "ar": [("ثلاثة كلاب", "خمسة كلاب"), ("سيارة حمراء", "سيارة زرقاء"), ("الكلب ليس هنا", "الكلب هنا")],
}
KEPT = {
    "en": [
        ("1.5 kg rice", "1500 g of rice"),
        ("6 ft ladder", "A ladder of 1.8 m"),
        ("Ten one-kilo bags", "10 x 1 kg bags"),
        ("5 kg bag", "A five-kilogram bag"),
        ("80 x 120 cm", "80 by 120 centimetres"),
        ("500 g rice", "half a kilo of rice"),
        ("12 oz mug", "A twelve-ounce mug"),
        ("dog 300 x 200", "A dog"),
        ("bag $20, 50% off, 19.99", "A bag"),
        ("Coat for $50", "A coat for fifty dollars"),
        ("Price 1.200 €", "It costs 1,200 euros"),
        ("A man and a woman", "Two people"),
        ("One dog chases another", "Two dogs chase each other"),
        ("parade, 12 May 2019", "A parade"),
        ("A man without a shirt", "A shirtless man"),
        ("No one is on the street", "An empty street"),
        ("Wearing nothing but socks", "Clad only in socks"),
        ("a crimson dress", "A scarlet gown"),
        ("A girl with blond hair", "A fair-haired girl"),
        ("A red car under the sky", "A red car below a blue sky"),
        ("Cable car no. 6", "Cable car number 6"),
    ],
    "de": [
        ("Zwei Kinder", "Ein Kinderpaar, beide klein"),
        ("3 Hunde", "Drei Hunde"),
        ("Reis 2,5 kg", "2,5 Kilogramm Reis"),
        ("Ein rotes Auto", "Ein Wagen in Rot"),
        ("Ein Mann ohne Hemd", "Ein hemdloser Mann"),
    ],
    "fr": [("Deux chiens", "Une paire de chiens"), ("La rue est vide", "Il n'y a pas de voiture dans la rue")],
    "zh": [("两只狗", "一对狗"), ("三明治", "一个三明治"), ("不锈钢锅", "钢锅")],
    "ja": [("2匹の犬", "二匹の犬"), ("赤い車", "レッドの車")],
}


def _fault(source: str, text: str, code: str) -> str | None:
    return next((fault for check in CHECKS if (fault := check(text, source, code))), None)


def test_other_facts_are_changes_in_each_language_and_other_words_are_not() -> None:
    rows = [(code, *pair) for code, pairs in CHANGED.items() for pair in pairs]
    assert [row for row in rows if _fault(row[1], row[2], row[0]) is None] == []
    rows = [(code, *pair) for code, pairs in KEPT.items() for pair in pairs]
    assert [row for row in rows if _fault(row[1], row[2], row[0]) is not None] == []
    # Each text says what it says itself.
    rows += [(code, *pair) for code, pairs in CHANGED.items() for pair in pairs]
    assert [row for row in rows for text in row[1:] if _fault(text, text, row[0]) is not None] == []
    assert find_lost_count("5 koiraa", "3 koiraa", "fi") == "digits"
    assert find_changed_negation("Koira", "Ei koiraa", "fi") is None
    assert find_changed_colour("Sininen", "Punainen", "fi") is None


CASES = [
    ("A man is standing before a building.", "A guy stands before a tall building.", "size"),
    ("A dog runs on grass.", "A brown canine runs on grass.", "colour"),
    ("A woman sits on a bench.", "A lady in a hat sits on a bench.", "garment"),
    ("A dog jumps.", "A collie jumps.", "breed"),
    ("A boat on a lake.", "A wooden boat on a lake.", "material"),
    ("Over hurdles, a dog leaps.", "A canine leaps over obstacles with its front paws.", "body"),
    ("Two dogs leap on a lawn.", "A pair of dogs leap on the lawn of a park.", "place"),
    ("A baby plays with a bear.", "A baby plays with a bear as her mother watches.", "person"),
    ("Some dogs run.", "Three dogs run.", "number"),
    ("A big sofa next to a small child.", "A large couch beside a little kid.", None),
    ("On the road, a boy rides a bike.", "A lad rides a bike on the highway.", None),
    ("A dog is standing on its hind legs.", "On its back legs, a canine stands.", None),
    ("A blond child in a T-shirt.", "A kid with golden hair and a tee.", None),
    ("A person crawls through snow.", "A guy crawls through the snow.", None),
    ("", "", None),
]


@pytest.mark.parametrize(("source", "text", "kind"), CASES)
def test_kinds_of_added_details(source: str, text: str, kind: str | None) -> None:
    assert find_added_detail(text, source) == kind
    # Numbers that are lost have a check of their own.
    assert find_lost_detail(source, text) == (None if kind == "number" else kind)
