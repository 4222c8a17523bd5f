"""Collects the gate's evidence besides metrics: validation, provenance, history and reviews."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from components.core.compute.provenance import DIRTY, dvc_hash, locked_hashes, path_hash
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tables.folders import VALIDATED
from components.core.tracking import in_store, training_run
from components.core.tracking.errors import is_transient
from components.encoders.adapter.sidecar import SIDECAR, WEIGHTS, Sidecar, read_sidecar
from components.evaluation.scoring.results import Report
from components.registry.folders import BASE, PromotionFolders
from components.registry.gate import Evidence
from components.registry.lineage import tables_trained_on
from components.registry.model import ROLLED_BACK, find_weights
from components.registry.reviews import read_reviewed

if TYPE_CHECKING:
    from mlflow import MlflowClient


def gather(
    client: MlflowClient,
    settings: Settings,
    report: Report,
    incumbent: Report,
    sidecar: Sidecar,
    folders: PromotionFolders,
) -> Evidence:
    """Evidence about the candidate of `report`."""
    policy = settings.promote
    registered = find_weights(client, policy.model, report.encoder_sha256)
    faults = [*_dirt(sidecar)] if policy.require_clean_git else []
    # The results of a champion come from the registry and need no check.
    for judged in (report, incumbent) if incumbent.encoder == BASE else (report,):
        faults += _result_faults(judged, folders)
    return Evidence(
        validation_faults=tuple(_validation_faults(policy.require_valid_tables, sidecar, folders)),
        provenance_faults=(*faults, *_provenance_faults(client, sidecar, folders)),
        rolled_back=str(registered.version) if registered is not None and ROLLED_BACK in registered.tags else "",
        reviewed=read_reviewed(settings.synthesize.store, folders.test_set),
    )


def _validation_faults(required: tuple[str, ...], sidecar: Sidecar, folders: PromotionFolders) -> list[str]:
    """Faults of the tables in `promote.require_valid_tables` and of those that the candidate was trained on."""
    tables = dict.fromkeys([*required, *tables_trained_on(sidecar.data_hashes)])
    faults = [fault for table in tables for fault in _table_faults(table, folders)]
    return faults + _input_faults(sidecar, VALIDATED)


def _table_faults(name: str, folders: PromotionFolders) -> list[str]:
    summary = folders.read_summary(name)
    if not summary:
        return [f"{folders.summary(name)} is missing or damaged: run `dvc repro validate@{name}`"]
    if summary.get("passed") is not True:
        return [f"table '{name}' failed: see reports/data_docs/{name}"]
    if summary.get("accepted", 0) > 0:
        return []
    return [f"table '{name}' has no accepted rows: see reports/data_docs/{name}"]


def _input_faults(sidecar: Sidecar, folder: Path) -> list[str]:
    """Files below `folder` that changed since the encoder was made of them; a mix also lists its members' tables."""
    faults = []
    for path, digest in sidecar.data_hashes.items():
        here = Path(path)
        if here.is_relative_to(folder) and (not here.is_file() or path_hash(here) != digest):
            faults.append(f"'{sidecar.name}' was not trained on the current {here}: run `dvc repro`")
    return faults


def _result_faults(report: Report, folders: PromotionFolders) -> list[str]:
    """Whether results belong to the current weights and are unchanged since stage `evaluate` wrote them."""
    fix = f"run `dvc repro evaluate@{report.encoder}`"
    faults = []
    weights, results = folders.models / report.encoder / WEIGHTS, folders.metrics / f"{report.encoder}.json"
    if not weights.is_file() or file_hash(weights) != report.encoder_sha256:
        faults.append(f"{weights} is not the file that was evaluated: {fix}")
    if dvc_hash(results) != locked_hashes(folders.dvc_lock).get(str(results)):
        faults.append(f"{results} differs from the results of stage evaluate in {folders.dvc_lock}: {fix}")
    return faults


def _dirt(sidecar: Sidecar) -> list[str]:
    if not sidecar.git_commit.endswith(DIRTY):
        return []
    return [f"'{sidecar.name}' was trained with uncommitted changes: commit them and train again"]


def _provenance_faults(client: MlflowClient, sidecar: Sidecar, folders: PromotionFolders) -> list[str]:
    folder = folders.models / sidecar.name
    faults = []
    if not sidecar.git_commit:
        faults.append(f"{folder}/{SIDECAR} has no git commit: train inside a git checkout")
    if not sidecar.data_hashes:
        faults.append(f"{folder}/{SIDECAR} has no data hashes: train again")
    faults += _input_faults(sidecar, folders.models)
    members = [Path(path).parent for path in sidecar.data_hashes if Path(path).is_relative_to(folders.models)]
    for encoder in (folder, *(member for member in members if member.name != BASE)):
        faults += _run_faults(client, encoder)
    return faults


def _run_faults(client: MlflowClient, folder: Path) -> list[str]:
    """Whether the run in an encoder's run.json exists, has finished, and made this encoder."""
    from mlflow.exceptions import MlflowException

    run_id = training_run(folder)
    if not run_id:
        return [f"{folder}/run.json names no training run: train again"]
    try:
        info = client.get_run(run_id).info
    except MlflowException as error:
        if is_transient(error):
            raise
        return [f"training run {run_id} is not in MLflow: set MLFLOW_TRACKING_URI to its store, or train again"]
    if info.status != "FINISHED" or info.lifecycle_stage != "active":
        return [f"training run {run_id} is {info.lifecycle_stage} and {info.status}: train again"]
    try:
        with in_store(client), TemporaryDirectory() as temporary:
            if not client.list_artifacts(run_id):
                return [
                    f"training run {run_id} has lost its artifacts: restore MLflow's artifact store, or train again"
                ]
            logged = Path(client.download_artifacts(run_id, f"{folder.name}/{SIDECAR}", temporary)).parent
            if read_sidecar(logged) == read_sidecar(folder):
                return []
    except (MlflowException, OSError, InputError) as error:
        if is_transient(error):
            raise
    return [f"training run {run_id} did not make the encoder in {folder}: train again"]
