"""The gate's evidence besides metrics, and links of a version with its training run, commit, dvc.lock and data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from components.core.compute.provenance import DIRTY, LOCK, dvc_hash, locked_hashes, path_hash
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tables.folders import QUARANTINE, SUMMARY, VALIDATED
from components.core.tables.records import SYNTHESISED
from components.core.tracking import explained, in_store, make_client, training_run
from components.core.tracking.errors import is_transient
from components.encoders.adapter.sidecar import SIDECAR, WEIGHTS, Sidecar, read_sidecar
from components.evaluation.scoring.results import DEFAULT, Report
from components.registry.decision import BASE
from components.registry.gate import Evidence
from components.registry.model import ROLLED_BACK, find_weights
from components.registry.reviews import read_reviewed

if TYPE_CHECKING:
    from mlflow import MlflowClient

_SHORTEST = 6
"""Characters of a run id, commit or hash by which versions are found."""


def gather(client: MlflowClient, settings: Settings, report: Report, incumbent: Report, sidecar: Sidecar) -> Evidence:
    """Evidence about the candidate of `report`."""
    policy = settings.promote
    registered = find_weights(client, policy.model, report.encoder_sha256)
    faults = list[str]()
    if policy.require_clean_git and sidecar.git_commit.endswith(DIRTY):
        faults.append(f"'{sidecar.name}' was trained with uncommitted changes: commit them and train again")
    # The results of a champion come from the registry and need no check.
    for judged in (report, incumbent) if incumbent.encoder == BASE else (report,):
        faults += _result_faults(judged)
    return Evidence(
        validation_faults=tuple(_validation_faults(policy.require_valid_tables, sidecar)),
        provenance_faults=(*faults, *_provenance_faults(client, sidecar)),
        rolled_back=str(registered.version) if registered is not None and ROLLED_BACK in registered.tags else "",
        reviewed=read_reviewed(settings.synthesize.store),
    )


def _validation_faults(required: tuple[str, ...], sidecar: Sidecar) -> list[str]:
    """Faults of the tables in `promote.require_valid_tables` and of those that the candidate was trained on."""
    tables = dict.fromkeys([*required, *tables_trained_on(sidecar.data_hashes)])
    faults = [fault for table in tables for fault in _table_faults(table)]
    return faults + _input_faults(sidecar, VALIDATED)


def read_summary(table: str) -> dict[str, Any]:
    """The result of stage `validate` for a table; empty if the file is missing or damaged."""
    try:
        return dict(json.loads(_summary(table).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def _summary(table: str) -> Path:
    return QUARANTINE / table / SUMMARY


def _table_faults(name: str) -> list[str]:
    summary = read_summary(name)
    if not summary:
        return [f"{_summary(name)} is missing or damaged: run `dvc repro validate@{name}`"]
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


def _result_faults(report: Report) -> list[str]:
    """Whether results belong to the current weights and are unchanged since stage `evaluate` wrote them."""
    fix = f"run `dvc repro evaluate@{report.encoder}`"
    faults = []
    weights, results = DEFAULT.models / report.encoder / WEIGHTS, DEFAULT.metrics / f"{report.encoder}.json"
    if not weights.is_file() or file_hash(weights) != report.encoder_sha256:
        faults.append(f"{weights} is not the file that was evaluated: {fix}")
    if dvc_hash(results) != locked_hashes(LOCK).get(str(results)):
        faults.append(f"{results} differs from the results of stage evaluate in {LOCK}: {fix}")
    return faults


def _provenance_faults(client: MlflowClient, sidecar: Sidecar) -> list[str]:
    folder = DEFAULT.models / sidecar.name
    faults = []
    if not sidecar.git_commit:
        faults.append(f"{folder}/{SIDECAR} has no git commit: train inside a git checkout")
    if not sidecar.data_hashes:
        faults.append(f"{folder}/{SIDECAR} has no data hashes: train again")
    faults += _input_faults(sidecar, DEFAULT.models)
    members = [Path(path).parent for path in sidecar.data_hashes if Path(path).is_relative_to(DEFAULT.models)]
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


@dataclass(frozen=True)
class Link:
    """A version with its aliases and tags."""

    version: str
    aliases: tuple[str, ...]
    tags: dict[str, str]


def lock_hash() -> str:
    """SHA-256 of dvc.lock; empty if there is none."""
    return file_hash(LOCK) if LOCK.is_file() else ""


def tags_of(sidecar: Sidecar) -> dict[str, str]:
    """Tags with the origin of a version's weights: commit, dvc.lock, and each file that it was trained on.

    `data/<path>` is the SHA-256 that the trained encoder recorded for a file, `dvc/<path>` the MD5 in dvc.lock.
    """
    tags = {
        "method": sidecar.method,
        "git_commit": sidecar.git_commit.removesuffix(DIRTY),
        "git_dirty": str(sidecar.git_commit.endswith(DIRTY)).lower(),
        "dvc_lock_sha256": lock_hash(),
    }
    locked = locked_hashes(LOCK)
    for path, digest in sidecar.data_hashes.items():
        tags[f"data/{path}"] = digest
    for path in (*sidecar.data_hashes, str(DEFAULT.models / sidecar.name)):
        if path in locked:
            tags[f"dvc/{path}"] = locked[path]
    return tags


def tables_trained_on(data_hashes: Iterable[str]) -> list[str]:
    """Names of the synthesised tables among the files that an encoder was trained on.

    Tables of an older pipeline, whose prompts are gone, are left out.
    """
    names = (path.stem for path in map(Path, data_hashes) if path.is_relative_to(VALIDATED))
    return [name for name in names if name in SYNTHESISED]


@explained()
def find_links(model: str, text: str) -> list[Link]:
    """Versions with the number `text`, or with a run id, commit or hash that starts with it; newest first."""
    if len(text) < _SHORTEST and not text.isdigit():
        raise InputError(
            f"--of '{text}' is too short: give at least {_SHORTEST} characters of a run id, commit or hash"
        )
    client = make_client()
    matching = [version for version in client.search_model_versions(f"name = '{model}'") if _matches(text, version)]
    # A search returns no aliases.
    versions = [client.get_model_version(model, version.version) for version in matching]
    versions.sort(key=lambda version: -int(version.version))
    return [Link(str(version.version), tuple(version.aliases), dict(version.tags)) for version in versions]


def _matches(text: str, version: Any) -> bool:
    return text == str(version.version) or (
        len(text) >= _SHORTEST and any(value.startswith(text) for value in version.tags.values())
    )


def record_lock(encoder: Path, facts: Mapping[str, str]) -> tuple[str, str] | None:
    """Store dvc.lock as an artifact of the run that trained `encoder`, and tag the run with `facts`.

    The first lock file after the training is kept: later ones describe other stages. Returns the ids of the MLflow run
    and of its experiment, or None if MLflow has no such run.
    """
    run_id = training_run(encoder)
    if not run_id or not LOCK.is_file():
        return None
    try:
        with explained():
            client = make_client()
            run = client.get_run(run_id)
    except InputError:
        return None
    if not facts.keys() <= run.data.tags.keys():
        client.log_artifact(run_id, str(LOCK))
        for name, value in {"dvc_lock_sha256": file_hash(LOCK), **facts}.items():
            client.set_tag(run_id, name, value)
    return run_id, str(run.info.experiment_id)
