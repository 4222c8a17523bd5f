"""The tags of every run: stage, code version, input hashes, owner."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from components.core.compute.provenance import git_commit, locked_hashes, path_hash
from components.core.system.worker_identity import new_worker

PARENT_RUN = "CLIPTUNE_PARENT_RUN"
"""Environment variable: id of the parent of new runs."""


def run_tags(stage: str, name: str) -> dict[str, str]:
    """Tags of a run: its stage and encoder, the commit, the versions, the machine, the owner, the parent run."""
    commit = git_commit()
    tags = {
        "stage": stage,
        "encoder": name,
        "git_commit": commit,
        "git_dirty": str(commit.endswith("-dirty")).lower(),
        "cliptune": _version("cliptune"),
        "python": platform.python_version(),
        "torch": _version("torch"),
        "processor": f"{platform.machine()}, {os.cpu_count()} cores",
        # By it the flow `sweep` knows a run whose process is gone.
        "owner": new_worker(),
    }
    if parent := os.environ.get(PARENT_RUN):
        tags["mlflow.parentRunId"] = parent
    return tags


def input_tags(inputs: Mapping[str, Path]) -> dict[str, str]:
    """Path, SHA-256 and, if it is in dvc.lock, MD5 of each input."""
    tags: dict[str, str] = {}
    locked = locked_hashes()
    for key, path in inputs.items():
        tags[f"input.{key}"] = str(path)
        tags[f"input.{key}.sha256"] = path_hash(path)
        if str(path) in locked:
            tags[f"input.{key}.dvc_md5"] = locked[str(path)]
    return tags


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
