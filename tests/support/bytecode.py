"""Compiled modules shared by the processes of a test, where Python was told to keep none: a start takes a third."""

from __future__ import annotations

import sys
from pathlib import Path


def kept_bytecode(folder: Path) -> dict[str, str]:
    """Environment variables of processes that keep their compiled modules beside a test's folder."""
    if not sys.dont_write_bytecode:
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder.parent / "pycache")}
