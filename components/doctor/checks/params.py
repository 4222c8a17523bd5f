"""Checks that params.yaml can be read and all its keys and names are known."""

from __future__ import annotations

from components.core.checking import check_methods, check_names, table_files
from components.doctor.check import Check, Finding, Surroundings, ok


def _examine(around: Surroundings) -> Finding:
    settings = around.settings
    check_names(settings)
    check_methods(settings.methods, table_files(settings))
    return ok(f"world '{settings.world.name}', {len(settings.methods)} methods, {len(settings.encoders)} encoders")


CHECK = Check("params.yaml", 0, _examine)
