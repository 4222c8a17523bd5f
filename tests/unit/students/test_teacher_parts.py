"""The teacher sets of absences and of units: written by hand, and true to the scenes of the captions they are about."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import pytest

from components.data.world.description.scenes import Scene
from components.validation.checks.general import says_name
from components.validation.tables.negations import find_denial_fault
from components.validation.world.checks import find_leak
from components.validation.world.facts import find_fault, find_part_fault
from tests.unit.students.test_teacher_edits import _scene

ASSETS = Path(__file__).parents[3] / "components" / "students" / "assets"


def _rows(name: str) -> list[dict[str, str]]:
    with (ASSETS / f"{name}.tsv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t", strict=True))


ABSENCES, UNITS = _rows("teacher_absences"), _rows("teacher_units")
UNKNOWN = {"a small basket"}
"""Foils of things that no drawing shows, so that the world's facts cannot tell."""
_scene_of = cache(_scene)


def test_there_are_enough_and_none_twice() -> None:
    assert (len(ABSENCES), len(UNITS)) == (150, 139)
    assert len({row["caption"] for row in ABSENCES}) == len(ABSENCES)
    assert len({(row["caption"], row["unit"]) for row in UNITS}) == len(UNITS)
    plain = {row["caption"] for row in _rows("teacher")}
    assert {row["caption"] for row in [*ABSENCES, *UNITS]} <= plain


@pytest.mark.parametrize("row", ABSENCES, ids=lambda row: row["absent_object"])
def test_an_absence_is_true_and_denies_one_thing(row: dict[str, str]) -> None:
    caption, name, text = row["caption"], row["absent_object"], row["absence"]
    assert not says_name(caption, name)
    assert find_denial_fault(text, caption, name) is None
    assert find_fault(text.replace(name, " "), _scene_of(caption)) is None
    assert find_leak(text) is None


@pytest.mark.parametrize("row", UNITS, ids=lambda row: row["unit"])
def test_a_unit_is_true_and_its_foil_false(row: dict[str, str]) -> None:
    scene: Scene = _scene_of(row["caption"])
    assert find_part_fault(row["unit"], scene) is None
    if row["unit_foil"] not in UNKNOWN:
        assert find_part_fault(row["unit_foil"], scene) not in (None, "nothing")
    assert find_leak(row["unit"]) is None
    assert find_leak(row["unit_foil"]) is None
