"""Texts in another language are found, English ones are not taken for foreign."""

from __future__ import annotations

import pytest

from components.validation.checks.wording import find_foreign


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Ein kleiner Hund sitzt links von einer großen Katze vor rotem Hintergrund.", "de"),
        ("Zwei Kinder spielen im Park.", "de"),
        ("Un petit chien est assis à gauche d'un grand chat.", "fr"),
        ("Un perro pequeño está a la izquierda de un gato grande.", "es"),
        ("Een kleine hond zit links van een grote kat", "nl"),
        ("Маленькая собака сидит слева от большой кошки", "script"),
        ("一只小狗坐在一只大猫的左边", "script"),
        ("小さな犬", "script"),
        ("كلب صغير يجلس على يسار قطة كبيرة", "script"),
        ("A dog 一只小狗坐在一只大猫的左边", "script"),
    ],
)
def test_another_language_is_named(text: str, language: str) -> None:
    assert find_foreign(text) == language


@pytest.mark.parametrize(
    "text",
    [
        "A small dog sits left of a large cat, red background.",
        "Small dog, large cat, red",
        "A plate of spaghetti alla carbonara",
        "A vintage Citroën 2CV parked in Montmartre",
        "Croissant au chocolat",
        "Neuschwanstein Castle",
        "A sign reading 北京 above a door in the old town of Beijing",
        "A bowl of kimchi jjigae and bibimbap",
        "Quesadillas and guacamole on a plate",
        "Hund",
        "Ein Hund",
        "42 :-)",
        "",
    ],
)
def test_english_and_what_is_too_short_to_tell_pass(text: str) -> None:
    assert find_foreign(text) is None
