"""Absences and units: what is said of a small dog left of a large cat on red, and which of it is refused, and why."""

from __future__ import annotations

from typing import Any

import pytest

from components.core.settings import Limits
from components.validation.tables.absences import find_denial_fault

ABSENCE = ("bus", "A small dog left of a large cat with no bus, red background.")
ABSENCE_FAULTS = [
    ("absent_object_mentioned:caption", "cat", "A small dog left of a large cat with no cat, red background."),
    # In another word than the caption's: only the world knows that it is there.
    ("absent_object_not_absent:object", "kitty", "A small dog left of a large cat with no kitty, red background."),
    ("absent_object_leak:word", "canine", "A small dog left of a large cat with no canine, red background."),
    # The world draws no carts, so it cannot tell whether something drawn may be called so.
    ("absent_object_not_absent:unknown", "cart", "A small dog left of a large cat with no cart, red background."),
    ("absence_denial:none", "bus", "A small dog left of a large cat and a bus, red background."),
    ("absence_denial:many", "bus", "No small dog left of a large cat, without a bus, red background."),
    ("absence_denial:another", "bus", "A small dog left of a large cat, not on red."),
    ("absence_fault:relation", "bus", "A small dog right of a large cat with no bus, red background."),
    ("absence_fault:object_missing", "bus", "A large cat with no bus, red background."),
    ("absence_fault:object_added", "bus", "A small dog left of a large cat with no bus but a bee, red background."),
    ("absence_copies:source", "bus", "img 7 SMALL dog left of large cat, red bg, jpg!"),
]

UNITS = [
    ("a small dog", "a large dog"),
    ("small dog left of large cat", "small dog right of large cat"),
    ("a large cat", "a large bus"),
    ("red background", "blue background"),
]
UNIT_FAULTS = [
    ("unit_fault:object_added", "a small bus, a dog", "a large bus, a dog"),
    ("unit_fault:size", "a large dog", "a small dog, large cat"),
    ("unit_overlap", "one scarlet hound", "one azure hound"),
    ("unit_fault:nothing", "an IMG_7 jpg", "an IMG_7 png"),
    ("unit_foil_not_false:true", "a small dog", "the small dog"),
    ("unit_foil_not_false:nothing", "a small dog", "a small thing"),
    ("unit_foil_overlap", "a small dog", "three blue bees"),
    ("unit_foil_copies:source", "a small dog", "A small dog!"),
]


def _refused(outcome: Any, faults: list[tuple[str, str, str]], good: int) -> None:
    assert len(outcome.accepted) == good
    assert len(outcome.quarantine) == len(faults)
    missed = [
        (reason, row["reason"])
        for (reason, *_), row in zip(faults, outcome.quarantine, strict=True)
        if reason not in row["reason"].split(";")
    ]
    assert missed == []


def test_absences(two_steps: Any) -> None:
    outcome = two_steps("absences", [*(texts for _, *texts in ABSENCE_FAULTS), ABSENCE])
    _refused(outcome, ABSENCE_FAULTS, 1)
    (row,) = outcome.accepted
    assert (row["absent_object"], row["absence"], row["similarity"]) == (*ABSENCE, 0.8)
    assert row["caption"].startswith("IMG_7")


def test_units_and_their_foils(two_steps: Any) -> None:
    outcome = two_steps("units", [*(texts for _, *texts in UNIT_FAULTS), *UNITS])
    _refused(outcome, UNIT_FAULTS, len(UNITS))
    assert [(row["unit"], row["unit_foil"]) for row in outcome.accepted] == UNITS


def test_without_facts_the_caption_alone_says_what_is_there(two_steps: Any) -> None:
    rows = [(name, text) for reason, name, text in ABSENCE_FAULTS if reason.startswith(("absence_fault", "absent"))]
    outcome = two_steps("absences", rows, check_facts=False)
    assert [row["absent_object"] for row in outcome.accepted] == ["kitty", "cart", "bus", "bus", "bus"]
    foils = [("a small dog", "the small dog"), ("a small dog", "a bus")]
    outcome = two_steps("units", foils, check_facts=False, tables={"units": Limits(min_overlap=0.5)})
    assert [row["unit_foil"] for row in outcome.accepted] == ["the small dog"]


CAPTION = "a child plays in the park"


@pytest.mark.parametrize(
    ("text", "name", "fault"),
    [
        ("a child plays in the park with no tree", "tree", None),
        ("a child plays in the park without any trees", "tree", None),
        ("a child not wearing a hat plays in the park", "hat", None),
        ("no bench is in the park where a child plays", "bench", None),
        ("a child plays in the park; a bench is missing", "park bench", None),
        ("a child plays in the park without an ice cream", "ice cream", None),
        ("there isn't a tree in the park where a child plays", "tree", None),
        ("a child plays in the park with a tree", "tree", "none"),
        ("no child plays in the park near a tree", "tree", "another"),
        ("a child plays in no park, but there a tree stands", "tree", "another"),
        ("no child plays in the park without a tree", "tree", "many"),
        ("a child plays in the park with no bench", "tree", "another"),
    ],
)
def test_what_is_denied(text: str, name: str, fault: str | None) -> None:
    assert find_denial_fault(text, CAPTION, name) == fault


def test_what_the_caption_denies_itself_does_not_count() -> None:
    assert find_denial_fault("a park without people, and no tree", "a park without people", "tree") is None
    assert find_denial_fault("a park without people and a tree", "a park without people", "tree") == "none"
