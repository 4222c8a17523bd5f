"""The offline spool: what could not be sent to MLflow waits as files, which the next run, promotion or sweep sends."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core.files import atomic_file
from components.core.provenance import path_hash
from components.tracking.artifact import upload
from components.tracking.batches import log_metrics
from components.tracking.retry_policy import fail_fast, is_transient

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = Path("state/unsent")
_LOG = logging.getLogger(__name__)


def keep(
    run_id: str,
    metrics: Sequence[Any],
    artifacts: Sequence[Path],
    status: str | None = None,
    end_ms: int | None = None,
    folder: Path = FOLDER,
) -> Path:
    """Write to the spool what could not be sent for a run.

    Args:
        run_id: the run.
        metrics: its last metrics, or those that came after its end.
        artifacts: files and folders that were to be copied; they stay where they are.
        status: how it ended; None when it had ended before.
        end_ms: when it ended, in ms since 1970.
        folder: where to write.
    """
    rows = [[metric.key, metric.value, metric.timestamp, metric.step] for metric in metrics]
    files = [[str(path), path_hash(path)] for path in artifacts]
    content = {"status": status, "end_ms": end_ms, "artifacts": files, "metrics": rows}
    # A run ends once, and is evaluated as often as people like.
    path = folder / (f"{run_id}.json" if status else f"{run_id}.{time.time_ns()}.json")
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(content) + "\n", "utf-8")
    return path


def waiting(folder: Path = FOLDER) -> list[Path]:
    """The files in the spool."""
    return sorted(folder.glob("*.json"))


def run_of(path: Path) -> str:
    """The run that a file of `waiting` is about."""
    return path.name.partition(".")[0]


def send(client: MlflowClient, folder: Path = FOLDER) -> list[str]:
    """Send what `keep` wrote and remove the files; returns the runs' ids. A server that is still away is no error.

    A run that the server does not know, as after a change of server, keeps its file.
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
    for name, digest in content["artifacts"]:
        path = Path(name)
        if path.exists() and path_hash(path) == digest:
            upload(client, run_id, path)
        else:
            _LOG.warning("%s has changed since run %s wrote it: the run in MLflow lacks it", path, run_id)
    if content["status"]:
        client.set_terminated(run_id, content["status"], content["end_ms"])
