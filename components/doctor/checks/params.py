"""params.yaml can be read, and every key in it is known."""

from __future__ import annotations

from components.doctor.check import Check, Finding, Surroundings, ok


def _examine(around: Surroundings) -> Finding:
    settings = around.settings
    return ok(f"world '{settings.world.name}', {len(settings.methods)} methods, {len(settings.encoders)} encoders")


CHECK = Check("params.yaml", 0, _examine)
