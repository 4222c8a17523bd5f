"""Keeps dvc.lock and the state of git with the MLflow run that trained an encoder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from components.core.errors import InputError
from components.core.files import file_hash, write_json
from components.core.provenance import LOCK
from components.tracking import TrackedRun, explained, make_client, training_run

STATE = Path("state/recorded")
"""One file per MLflow run that has its dvc.lock, so that nothing is stored twice and MLflow is asked once."""


def keep_lock(encoder: Path, facts: Mapping[str, str], lock: Path = LOCK, state: Path = STATE) -> str | None:
    """Store dvc.lock as an artifact of the run that trained `encoder`, and tag the run.

    The first lock file after the training stays: later ones tell of other stages.

    Args:
        encoder: folder of the encoder.
        facts: more tags, such as the flow run.
        lock: the lock file.
        state: where it is noted that a run has it.

    Returns:
        The MLflow run's id, None where there is no such run.
    """
    run_id = training_run(encoder)
    if not run_id or not lock.is_file():
        return None
    if (state / f"{run_id}.json").is_file():
        return run_id
    try:
        with explained():
            client = make_client()
            experiment = client.get_run(run_id).info.experiment_id
    except InputError:
        return None
    client.log_artifact(run_id, str(lock))
    tags = {"dvc_lock_sha256": file_hash(lock), **facts}
    TrackedRun(client, run_id, str(experiment)).set_tags(tags)
    write_json(state / f"{run_id}.json", {"experiment_id": str(experiment), **tags})
    return run_id


def experiment_of(run_id: str, state: Path = STATE) -> str:
    """The id of the MLflow experiment that a recorded run is in, empty when it is not recorded."""
    path = state / f"{run_id}.json"
    return str(json.loads(path.read_text("utf-8"))["experiment_id"]) if path.is_file() else ""
