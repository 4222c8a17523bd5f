"""The checks: one file each, which exports `CHECK`."""

from __future__ import annotations

from components.core.discovery import file_names, find
from components.doctor.check import Check


def all_checks() -> dict[str, Check]:
    """File name -> check."""
    known = file_names(__path__)
    return {name: find(__name__, known, name, "CHECK", "check") for name in known}
