"""The store of everything that language models have answered."""

from __future__ import annotations

from components.doctor.check import Check, Finding, Surroundings
from components.doctor.database import examine_database


def _examine(around: Surroundings) -> Finding:
    return examine_database(around.settings.synthesize.store, "synthesize.store in params.yaml")


CHECK = Check("generation store", 8, _examine, needs_settings=True)
