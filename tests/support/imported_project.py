"""A new project into which a test imports data by `cliptune init`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.params import REPO


def start_project(folder: Path) -> None:
    """Settings, profiles and a repository with one commit."""
    shutil.copy(REPO / "params.yaml", folder)
    shutil.copytree(REPO / "infra" / "profiles", folder / "infra" / "profiles")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
