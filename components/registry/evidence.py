"""What the gate must know about a candidate besides metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from components.encoders.sidecar import WEIGHTS, Sidecar
from components.evaluation.results import Report
from components.files import file_hash
from components.provenance import path_hash
from components.registry.folders import Folders
from components.registry.gate import Evidence
from components.registry.model import ROLLED_BACK, find_weights
from components.tracking import RUN_FILE

if TYPE_CHECKING:
    from mlflow import MlflowClient


def gather(client: MlflowClient, model: str, report: Report, sidecar: Sidecar, folders: Folders) -> Evidence:
    """Look at validation, provenance and history of the candidate that `report` is about."""
    known = find_weights(client, model, report.encoder_sha256)
    return Evidence(
        validation_faults=tuple(_validation_faults(sidecar, folders)),
        provenance_faults=tuple(_provenance_faults(client, report, sidecar, folders)),
        rolled_back=str(known.version) if known is not None and ROLLED_BACK in known.tags else "",
    )


def training_run(folder: Path) -> str:
    """The id of the run that made the encoder in `folder`, or an empty text."""
    try:
        return str(json.loads((folder / RUN_FILE).read_text("utf-8"))["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _validation_faults(sidecar: Sidecar, folders: Folders) -> list[str]:
    summary = folders.validation_summary
    try:
        passed = json.loads(summary.read_text("utf-8")).get("passed") is True
    except (OSError, ValueError, AttributeError):
        return [f"{summary} is missing or damaged: run `dvc repro validate`"]
    faults = [] if passed else [f"{summary} says that validation failed: see reports/data_docs"]
    examples = [Path(path) for path in sidecar.data_hashes if Path(path).parent.name == folders.validated.name]
    for path in examples:
        here = folders.validated / path.name
        if not here.is_file() or path_hash(here) != sidecar.data_hashes[str(path)]:
            faults.append(f"'{sidecar.name}' was not trained on the {here} that is here: run `dvc repro`")
    return faults


def _provenance_faults(client: MlflowClient, report: Report, sidecar: Sidecar, folders: Folders) -> list[str]:
    folder = folders.models / report.encoder
    faults = []
    if not sidecar.git_commit:
        faults.append(f"{folder}/encoder.json has no git commit: train inside a git checkout")
    if not sidecar.data_hashes:
        faults.append(f"{folder}/encoder.json has no data hashes: train again")
    weights = folder / WEIGHTS
    if not weights.is_file() or file_hash(weights) != report.encoder_sha256:
        faults.append(f"{weights} is not what was evaluated: run `dvc repro`")
    return faults + _run_faults(client, folder)


def _run_faults(client: MlflowClient, folder: Path) -> list[str]:
    from mlflow.exceptions import MlflowException

    run_id = training_run(folder)
    if not run_id:
        return [f"{folder}/run.json names no training run: train again"]
    try:
        info = client.get_run(run_id).info
    except MlflowException:
        return [
            f"training run {run_id} is not in MLflow: set MLFLOW_TRACKING_URI to the store that has it, or train again"
        ]
    if info.status != "FINISHED" or info.lifecycle_stage != "active":
        return [f"training run {run_id} is {info.lifecycle_stage} and {info.status}: train again"]
    return []
