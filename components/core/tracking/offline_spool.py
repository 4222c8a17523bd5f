"""Data on their way to an MLflow server that may be unavailable.

Metrics are sent in the background. Data that the server lacks at the end of a run become files of the offline spool,
which the next run or promotion sends.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from more_itertools import chunked

from components.core.compute.provenance import path_hash
from components.core.system.errors import InputError, shown_address
from components.core.system.retry import retrying
from components.core.tables.files import atomic_file
from components.core.tracking.address import in_store, tracking_uri
from components.core.tracking.errors import call_with_retries, fail_fast, is_transient

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = Path("state/unsent")
Tables = Mapping[str, Mapping[str, list[Any]]]
"""Name -> column -> values."""
_LEAST, _BATCH = 200, 1000
"""Metrics of one request: fewer wait for others, and MLflow accepts no more."""
_LOG = logging.getLogger(__name__)


class AsynchronousMetrics:
    """Sends one run's metrics in order from a thread, so that training never waits for the server.

    MLflow's own asynchronous logging drops a batch when the server is unavailable for longer than the client's retries,
    keeps no copy of it, and sends batches out of order.
    """

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self._client, self._run_id = client, run_id
        self._waiting: list[Any] = []
        self._stopped = threading.Event()
        self._sender = ThreadPoolExecutor(1, "metrics")
        self._sending: Future[None] | None = None

    def put(self, metrics: list[Any]) -> None:
        """Queue MLflow metrics and return at once; raises MlflowException if earlier ones were refused."""
        self._waiting.extend(metrics)
        if self._sending is not None and self._sending.done():
            self._sending.result()
            self._sending = None
        if self._sending is None and len(self._waiting) >= _LEAST:
            self._sending = self._sender.submit(self._send)

    def stop(self) -> list[Any]:
        """Stop sending; returns the metrics that the server has not accepted. Raises as `put`."""
        self._stopped.set()
        self._sender.shutdown()
        error = None if self._sending is None else self._sending.exception()
        if error is not None and not is_transient(error):
            raise error
        return self._waiting

    def _send(self) -> None:
        wait = f"{shown_address(tracking_uri())} does not answer: the metrics of run {self._run_id} wait"
        again = retrying(math.inf, is_transient, lambda _: wait, first_s=1, longest_s=15, stopped=self._stopped)
        while len(self._waiting) >= _LEAST and not self._stopped.is_set():
            batch = self._waiting[:_BATCH]
            again(self._client.log_batch, self._run_id, metrics=batch)
            del self._waiting[: len(batch)]


@dataclass(frozen=True)
class Unsent:
    """Data of a run that the server does not have yet.

    Attributes:
        metrics: MLflow metrics.
        artifacts: files and folders.
        tables: for MLflow's view of tables; those that the run has already are not replaced.
        status: final status of the run; None if it had ended before.
        end_ms: end of the run, in ms since 1970.
    """

    metrics: Sequence[Any] = ()
    artifacts: Sequence[Path] = ()
    tables: Tables = field(default_factory=dict)
    status: str | None = None
    end_ms: int | None = None


def deliver(connect: Callable[[], MlflowClient], run_id: str, unsent: Unsent, within_s: float, title: str) -> None:
    """Send data of a run; if the server is unavailable for `within_s` seconds, write them to the spool with a warning.

    Args:
        title: of the data in the warning.

    Raises:
        MlflowException: the server refused them.
    """
    try:
        call_with_retries(lambda: _send(connect(), run_id, unsent), within_s)
        return
    except Exception as error:
        if not (isinstance(error, InputError) or is_transient(error)):
            raise
    path = keep(run_id, unsent)
    where = shown_address(tracking_uri())
    _LOG.warning("%s is unavailable: %s waits in %s; the next run sends it", where, title, path)


def keep(run_id: str, unsent: Unsent, folder: Path = FOLDER) -> Path:
    """Write data of a run to the spool, of artifacts only their paths and hashes; returns the file."""
    content = {
        "status": unsent.status,
        "end_ms": unsent.end_ms,
        "artifacts": [[str(path), path_hash(path)] for path in unsent.artifacts],
        "metrics": [[metric.key, metric.value, metric.timestamp, metric.step] for metric in unsent.metrics],
        "tables": unsent.tables,
    }
    # A run ends once, but may be evaluated several times.
    path = folder / (f"{run_id}.json" if unsent.status else f"{run_id}.{time.time_ns()}.json")
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
                _send(client, run_of(path), _read(path))
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


def _read(file: Path) -> Unsent:
    from mlflow.entities import Metric

    content = json.loads(file.read_text("utf-8"))
    unchanged = []
    for name, digest in content["artifacts"]:
        path = Path(name)
        if path.exists() and path_hash(path) == digest:
            unchanged.append(path)
        else:
            _LOG.warning("%s has changed since run %s wrote it, so it is missing in MLflow", path, run_of(file))
    metrics = [Metric(*row) for row in content["metrics"]]
    # Files of an earlier version have no tables.
    return Unsent(metrics, unchanged, content.get("tables", {}), content["status"], content["end_ms"])


def _send(client: MlflowClient, run_id: str, unsent: Unsent) -> None:
    for batch in chunked(unsent.metrics, _BATCH):
        client.log_batch(run_id, metrics=batch)
    with in_store(client):
        existing = {artifact.path for artifact in client.list_artifacts(run_id)} if unsent.tables else set()
        for name, table in unsent.tables.items():
            if f"{name}.json" not in existing:
                client.log_table(run_id, dict(table), f"{name}.json")
    for path in unsent.artifacts:
        if path.is_dir():
            client.log_artifacts(run_id, str(path), path.name)
        else:
            client.log_artifact(run_id, str(path))
    if unsent.status:
        client.set_terminated(run_id, unsent.status, unsent.end_ms)
