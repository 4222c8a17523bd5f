"""The end of a run whose server was away: a file, which the next run or the sweep sends."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.files import atomic_file
from components.tracking.outbox import is_passing

if TYPE_CHECKING:
    from mlflow import MlflowClient

FOLDER = Path("state/unsent")


def keep(run_id: str, metrics: Sequence[Any], status: str, end_ms: int, folder: Path = FOLDER) -> Path:
    """Write what a run's server has not: its last metrics, its status and the time of its end in ms since 1970."""
    rows = [[metric.key, metric.value, metric.timestamp, metric.step] for metric in metrics]
    path = folder / f"{run_id}.json"
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps({"status": status, "end_ms": end_ms, "metrics": rows}) + "\n", "utf-8")
    return path


def waiting(folder: Path = FOLDER) -> list[Path]:
    """The files of runs that are not sent."""
    return sorted(folder.glob("*.json"))


def send(client: MlflowClient, folder: Path = FOLDER) -> list[str]:
    """Send what `keep` wrote and remove the files; returns the runs' ids. A server that is still away is no error.

    A run that the server does not know, as after a change of server, keeps its file.
    """
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException

    sent = []
    for path in waiting(folder):
        kept = json.loads(path.read_text("utf-8"))
        metrics = [Metric(*row) for row in kept["metrics"]]
        try:
            for start in range(0, len(metrics), 1000):
                client.log_batch(path.stem, metrics=metrics[start : start + 1000])
            client.set_terminated(path.stem, kept["status"], kept["end_ms"])
        except MlflowException as error:
            if is_passing(error):
                break
            continue
        path.unlink()
        sent.append(path.stem)
    return sent
