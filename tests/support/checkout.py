"""A copy of the working tree's tracked files as a repository of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.params import REPO, copy_profiles


def make_checkout(folder: Path) -> None:
    """Copy the tracked files into `folder`, and commit them."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (REPO / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / name, folder / name)
    first_commit(folder, add=True)


def first_commit(folder: Path, *, add: bool = False) -> None:
    """Make the folder a repository with one commit, which is empty without `add`."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org"]
    added = [["add", "-A"]] if add else []
    for command in (["init", "-q"], *added, ["commit", "-q", "--allow-empty", "-m", "start"]):
        subprocess.run([*git, *command], cwd=folder, check=True)


def start_project(folder: Path) -> None:
    """Settings, profiles and a repository with one commit, for data that a test imports by `cliptune init`."""
    shutil.copy(REPO / "params.yaml", folder)
    copy_profiles(folder)
    first_commit(folder)


def newcomer(checkout: Path) -> dict[str, str]:
    """The environment of a newcomer: the programs of this environment, an empty home, no network."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    variables = {"PATH": path, "PYTHONPATH": str(checkout), "HOME": str(checkout.parent), "HF_HUB_OFFLINE": "1"}
    variables |= {"MLFLOW_TRACKING_URI": f"sqlite:///{checkout}/mlruns/mlflow.db", "GX_ANALYTICS_ENABLED": "false"}
    # With other tests running, more threads than cores wait for each other.
    return {**os.environ, **variables, "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1"}
