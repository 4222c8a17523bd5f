"""Uploads files and folders into the artifacts of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow import MlflowClient


def upload(client: MlflowClient, run_id: str, path: Path) -> None:
    """Copy a file, or a folder under its own name, into a run's artifacts; what is there is replaced."""
    if path.is_dir():
        client.log_artifacts(run_id, str(path), path.name)
    else:
        client.log_artifact(run_id, str(path))
