"""Rules that exchange two things of a caption, on invented captions, and where they keep their hands off."""

from __future__ import annotations

import pytest

from components.data.people.swapping import attributes_exchanged, relation_turned, roles_exchanged


@pytest.mark.parametrize(
    ("caption", "false"),
    [
        ("A red car beside a blue van .", ("A blue car beside a red van .", "colour")),
        ("Black cat on an orange sofa", ("Orange cat on a black sofa", "colour")),
        ("An orange cat on a black sofa", ("A black cat on an orange sofa", "colour")),
        ("A small boy climbs a tall ladder .", ("A tall boy climbs a small ladder .", "size")),
        # The same things in another order.
        ("A red car and a blue car .", None),
        ("A red car and two blue cars .", None),
        ("A red hat and a red scarf .", None),
        # One attribute of one thing.
        ("A black and white cat .", None),
        ("A blue-green lake under tall trees .", None),
        ("A man in black sitting on a red chair .", None),
        ("A red van .", None),
    ],
)
def test_attributes_of_two_things_are_exchanged(caption: str, false: tuple[str, str] | None) -> None:
    assert attributes_exchanged(caption) == false


@pytest.mark.parametrize(
    ("caption", "false"),
    [
        ("A woman carries a sleeping child .", "A child carries a sleeping woman ."),
        ("The dog is chasing another cat .", "The cat is chasing another dog ."),
        ("Girl feeding a brown horse", "Horse feeding a brown girl"),
        # Either does it to the other, or nothing is done.
        ("A man hugs a woman .", None),
        ("A man and a woman are walking .", None),
        ("A boy walks beside a girl .", None),
        ("A dog chases another dog .", None),
    ],
)
def test_two_beings_are_exchanged(caption: str, false: str | None) -> None:
    assert roles_exchanged(caption) == false


@pytest.mark.parametrize(
    ("caption", "false"),
    [
        ("A cat sleeps under a table .", "A cat sleeps over a table ."),
        ("A boy stands in front of his house .", "A boy stands behind his house ."),
        ("A lamp above the desk .", "A lamp below the desk ."),
        ("A cat on top of a shelf", "A cat underneath a shelf"),
        # Twice the same says nothing false when one of them is turned; no thing follows.
        ("A cat under a table under a tree .", None),
        ("A man is bent over .", None),
        ("A man reads .", None),
    ],
)
def test_a_relation_is_turned_round(caption: str, false: str | None) -> None:
    assert relation_turned(caption) == false
