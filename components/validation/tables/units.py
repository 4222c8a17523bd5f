"""CS-CLIP's parts of captions, true of the picture, each with a foil that is not."""

from __future__ import annotations

from typing import Any

from components.core.records import UNITS
from components.validation.checks.general import COMMON
from components.validation.table import Answer, Check, Synthesised, View
from components.validation.tables.negations import OVERLAP


def _part_faults(view: View) -> list[Any]:
    facts = view.probes.facts
    if facts is None:
        return [None] * len(view.texts)
    return [facts.find_part_fault(text, scene) for text, scene in zip(view.texts, view.rows["facts"], strict=True)]


def _not_false(view: View) -> list[Any]:
    """`true` or `nothing` where a foil is not certainly false."""
    if view.probes.facts is None:
        return [None] * len(view.texts)
    faults = {None: "true", "nothing": "nothing"}
    return [faults.get(fault) for fault in _part_faults(view)]


TRUE_PART = Check("fault", "fault", _part_faults)
"""Tells something of the picture and nothing wrong, where the world knows."""

FALSE_PART = Check("not_false", "not_false", _not_false)
"""Says something false of the picture, where the world knows."""

OF_PARTS = tuple(check for check in COMMON if check.column not in ("words", "similarity"))
"""A part may be of two words, and a foil's meaning as near or far as it likes."""

TABLES = (
    Synthesised(
        UNITS,
        (
            Answer("unit", "name_unit", (*OF_PARTS, OVERLAP, TRUE_PART), suffix="_unit"),
            Answer("unit_foil", "change_unit", (*OF_PARTS, OVERLAP, FALSE_PART), suffix="_foil"),
        ),
    ),
)
