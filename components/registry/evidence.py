"""Collects what the gate needs besides metrics: validation, provenance, published results."""

from __future__ import annotations

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from components.core.errors import InputError
from components.core.files import file_hash
from components.core.folders import VALIDATED
from components.core.provenance import DIRTY, locked_hashes, path_hash
from components.core.settings import Settings
from components.encoders.adapter.sidecar import SIDECAR, WEIGHTS, Sidecar, read_sidecar
from components.evaluation.results import Report
from components.registry.folders import BASE, Folders
from components.registry.gate import Evidence
from components.registry.lineage import tables_trained_on
from components.registry.model import ROLLED_BACK, find_weights
from components.registry.votes import Votes, Wins, wins
from components.tracking import training_run
from components.tracking.retry_policy import is_transient

if TYPE_CHECKING:
    from mlflow import MlflowClient


def gather(
    client: MlflowClient, settings: Settings, report: Report, incumbent: Report, sidecar: Sidecar, folders: Folders
) -> Evidence:
    """Look at validation, provenance, history and votes of the candidate that `report` is about."""
    policy = settings.promote
    known = find_weights(client, policy.model, report.encoder_sha256)
    faults = [*_dirt(sidecar)] if policy.clean else []
    # A champion's results come from the registry.
    for judged in (report, incumbent) if incumbent.encoder == BASE else (report,):
        faults += _result_faults(judged, folders)
    return Evidence(
        validation_faults=tuple(_validation_faults(policy.validation, sidecar, folders)),
        provenance_faults=(*faults, *_provenance_faults(client, sidecar, folders)),
        rolled_back=str(known.version) if known is not None and ROLLED_BACK in known.tags else "",
        wins=None if policy.least_wins is None else _wins(settings.synthesize.store, report, incumbent),
    )


def _wins(store: str, report: Report, incumbent: Report) -> Wins:
    votes = Votes(store)
    try:
        return wins(votes.all(), report.encoder_sha256, incumbent.encoder_sha256)
    finally:
        votes.close()


def _validation_faults(required: tuple[str, ...], sidecar: Sidecar, folders: Folders) -> list[str]:
    """Of the tables that params.yaml asks for, and of those that the candidate was trained on."""
    tables = dict.fromkeys([*required, *tables_trained_on(sidecar.data_hashes)])
    faults = [fault for table in tables for fault in _table_faults(table, folders)]
    return faults + _input_faults(sidecar, VALIDATED)


def _table_faults(name: str, folders: Folders) -> list[str]:
    found = folders.read_summary(name)
    if not found:
        return [f"{folders.summary(name)} is missing or damaged: run `dvc repro validate@{name}`"]
    if found.get("passed") is not True:
        return [f"table '{name}' failed: see reports/data_docs/{name}"]
    return (
        [] if found.get("accepted", 0) > 0 else [f"table '{name}' has no accepted rows: see reports/data_docs/{name}"]
    )


def _input_faults(sidecar: Sidecar, folder: Path) -> list[str]:
    """Of the files below `folder` that the encoder was made of, among them a mix's members and their tables."""
    faults = []
    for path, digest in sidecar.data_hashes.items():
        here = Path(path)
        if here.is_relative_to(folder) and (not here.is_file() or path_hash(here) != digest):
            faults.append(f"'{sidecar.name}' was not trained on the {here} that is here: run `dvc repro`")
    return faults


def _result_faults(report: Report, folders: Folders) -> list[str]:
    """Of results: whether they are about the weights that are here, and as stage `evaluate` wrote them."""
    fix = f"run `dvc repro evaluate@{report.encoder}`"
    faults = []
    weights, results = folders.models / report.encoder / WEIGHTS, folders.metrics / f"{report.encoder}.json"
    if not weights.is_file() or file_hash(weights) != report.encoder_sha256:
        faults.append(f"{weights} is not what was evaluated: {fix}")
    found = hashlib.md5(results.read_bytes(), usedforsecurity=False).hexdigest()
    if found != locked_hashes(folders.dvc_lock).get(str(results)):
        faults.append(f"{results} is not what {folders.dvc_lock} says that stage evaluate wrote: {fix}")
    return faults


def _dirt(sidecar: Sidecar) -> list[str]:
    if not sidecar.git_commit.endswith(DIRTY):
        return []
    return [f"'{sidecar.name}' was trained from a tree with uncommitted changes: commit them and train again"]


def _provenance_faults(client: MlflowClient, sidecar: Sidecar, folders: Folders) -> list[str]:
    folder = folders.models / sidecar.name
    faults = []
    if not sidecar.git_commit:
        faults.append(f"{folder}/{SIDECAR} has no git commit: train inside a git checkout")
    if not sidecar.data_hashes:
        faults.append(f"{folder}/{SIDECAR} has no data hashes: train again")
    faults += _input_faults(sidecar, folders.models)
    members = [Path(path).parent for path in sidecar.data_hashes if Path(path).is_relative_to(folders.models)]
    for made in (folder, *(member for member in members if member.name != BASE)):
        faults += _run_faults(client, made)
    return faults


def _run_faults(client: MlflowClient, folder: Path) -> list[str]:
    """Of the run that an encoder's run.json names: whether it is there, has ended, and made this encoder."""
    from mlflow.exceptions import MlflowException

    run_id = training_run(folder)
    if not run_id:
        return [f"{folder}/run.json names no training run: train again"]
    try:
        info = client.get_run(run_id).info
    except MlflowException as error:
        if is_transient(error):
            raise
        return [
            f"training run {run_id} is not in MLflow: set MLFLOW_TRACKING_URI to the store that has it, or train again"
        ]
    if info.status != "FINISHED" or info.lifecycle_stage != "active":
        return [f"training run {run_id} is {info.lifecycle_stage} and {info.status}: train again"]
    try:
        with TemporaryDirectory() as temporary:
            made = Path(client.download_artifacts(run_id, f"{folder.name}/{SIDECAR}", temporary)).parent
            if read_sidecar(made) == read_sidecar(folder):
                return []
    except (MlflowException, OSError, InputError) as error:
        if is_transient(error):
            raise
    return [f"training run {run_id} did not make the encoder in {folder}: train again"]
