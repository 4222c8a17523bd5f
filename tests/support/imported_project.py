"""A new project into which a test imports data by `cliptune init`."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.support.checkout import first_commit
from tests.support.params import REPO


def start_project(folder: Path) -> None:
    """Settings, profiles and a repository with one commit."""
    shutil.copy(REPO / "params.yaml", folder)
    shutil.copytree(REPO / "infra" / "profiles", folder / "infra" / "profiles")
    first_commit(folder)
