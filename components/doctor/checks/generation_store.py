"""Checks that the generation store, which holds all answers of language models, can be opened."""

from __future__ import annotations

from components.doctor.check import Check, Finding, Surroundings
from components.doctor.database import examine_database


def _examine(around: Surroundings) -> Finding:
    return examine_database(around.settings.synthesize.store, "synthesize.store in params.yaml")


CHECK = Check("generation store", 8, _examine, needs_settings=True)
