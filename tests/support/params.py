"""params.yaml with every method of this repository."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from components.cli.edited_params import overlaid

REPO = Path(__file__).parents[2]


@cache
def profile_text(name: str) -> str:
    """params.yaml with a profile laid over it."""
    return overlaid(name, REPO / "params.yaml", REPO / "infra" / "profiles")


def every_method() -> dict[str, Any]:
    """Profile `methods` as plain data, to be changed by a test; only base and ParaCLIP are scored, as by default."""
    raw: dict[str, Any] = yaml.safe_load(profile_text("methods"))
    return raw | {"compare_encoders": ["base", "paraclip"]}


def copy_profiles(folder: Path) -> None:
    """Copy the profiles of users and of papers into a project's folder."""
    for of in ("infra", "research"):
        shutil.copytree(REPO / of / "profiles", folder / of / "profiles")
