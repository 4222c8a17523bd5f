"""The offline spool: files with data for an unavailable MLflow server, which the next run or promotion sends."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from more_itertools import chunked

from components.core.compute.provenance import path_hash
from components.core.tables.files import atomic_file
from components.tracking.address import in_store
from components.tracking.errors import fail_fast, is_transient

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = Path("state/unsent")
Tables = Mapping[str, Mapping[str, list[Any]]]
"""Name -> column -> values."""
BATCH = 1000
"""Metrics that MLflow accepts in one request."""
_LOG = logging.getLogger(__name__)


def keep(
    run_id: str,
    metrics: Sequence[Any],
    artifacts: Sequence[Path],
    status: str | None = None,
    end_ms: int | None = None,
    folder: Path = FOLDER,
    tables: Tables | None = None,
) -> Path:
    """Write data of a run that could not be sent to the spool; returns the file.

    Args:
        artifacts: files and folders to upload; only their paths and hashes are stored.
        status: final status of the run; None if it had ended before.
        end_ms: end of the run, in ms since 1970.
        tables: as for `log_tables`.
    """
    rows = [[metric.key, metric.value, metric.timestamp, metric.step] for metric in metrics]
    files = [[str(path), path_hash(path)] for path in artifacts]
    content = {"status": status, "end_ms": end_ms, "artifacts": files, "metrics": rows, "tables": tables or {}}
    # A run ends once, but may be evaluated several times.
    path = folder / (f"{run_id}.json" if status else f"{run_id}.{time.time_ns()}.json")
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content) + "\n", "utf-8")
    return path


def waiting(folder: Path = FOLDER) -> list[Path]:
    """The files in the spool."""
    return sorted(folder.glob("*.json"))


def run_of(path: Path) -> str:
    """The id of the run of a spool file."""
    return path.name.partition(".")[0]


def send(client: MlflowClient, folder: Path = FOLDER) -> list[str]:
    """Send the spool and remove its files; returns the runs' ids.

    Files are kept if the server is still unavailable or does not have their run.
    """
    from mlflow.exceptions import MlflowException
    from requests import RequestException

    sent = []
    for path in waiting(folder):
        try:
            with fail_fast():
                _send(client, run_of(path), json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            # Another process has sent it.
            continue
        except (MlflowException, RequestException) as error:
            if is_transient(error):
                break
            continue
        path.unlink(missing_ok=True)
        sent.append(run_of(path))
    return sent


def _send(client: MlflowClient, run_id: str, content: dict[str, Any]) -> None:
    from mlflow.entities import Metric

    metrics = [Metric(*row) for row in content["metrics"]]
    log_metrics(client, run_id, metrics)
    # Files of an earlier version have none.
    log_tables(client, run_id, content.get("tables", {}))
    for name, digest in content["artifacts"]:
        path = Path(name)
        if path.exists() and path_hash(path) == digest:
            upload(client, run_id, path)
        else:
            _LOG.warning("%s has changed since run %s wrote it, so it is missing in MLflow", path, run_id)
    if content["status"]:
        client.set_terminated(run_id, content["status"], content["end_ms"])


def log_metrics(client: MlflowClient, run_id: str, metrics: Sequence[Any]) -> None:
    """Log any number of MLflow metrics into a run; raises MlflowException if the server refuses or is unavailable."""
    for batch in chunked(metrics, BATCH):
        client.log_batch(run_id, metrics=batch)


def log_tables(client: MlflowClient, run_id: str, tables: Tables) -> None:
    """Log tables for MLflow's view of tables; those that the run has already are not replaced."""
    with in_store(client):
        existing = {artifact.path for artifact in client.list_artifacts(run_id)} if tables else set()
        for name, table in tables.items():
            if f"{name}.json" not in existing:
                client.log_table(run_id, dict(table), f"{name}.json")


def upload(client: MlflowClient, run_id: str, path: Path) -> None:
    """Copy a file, or a folder with its name, into a run's artifacts; existing artifacts are replaced."""
    if path.is_dir():
        client.log_artifacts(run_id, str(path), path.name)
    else:
        client.log_artifact(run_id, str(path))
