"""Metrics reach a server that was away, in order and once; a refusal is raised; what is left at the end is spooled."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INTERNAL_ERROR, TEMPORARILY_UNAVAILABLE

from components.core.settings import Settings
from components.sweeping.sweep import sweep_runs
from components.tracking import make_client, offline_spool, tracked_run
from components.tracking.asynchronous_metrics import AsynchronousMetrics
from components.tracking.retry_policy import WAIT, is_transient


class Server:
    """Takes metrics unless it is away or refuses."""

    def __init__(self, *faults: int, away: bool = False) -> None:
        self.faults = list(faults)
        self.back = threading.Event()
        if not away:
            self.back.set()
        self.taken: list[Any] = []

    def log_batch(self, _run_id: str, metrics: list[Any]) -> None:
        """As the client's."""
        if not self.back.is_set():
            raise MlflowException("no answer", INTERNAL_ERROR)
        if self.faults:
            raise MlflowException("fault", self.faults.pop(0))
        self.taken += metrics


def _metrics(count: int, begin: int = 0) -> list[Metric]:
    return [Metric("loss", float(step), 1, step) for step in range(begin, begin + count)]


def _sender(server: Server) -> AsynchronousMetrics:
    return AsynchronousMetrics(server, "run")  # type: ignore[arg-type]


def test_putting_never_waits_and_everything_arrives_in_order() -> None:
    server = Server(INTERNAL_ERROR, TEMPORARILY_UNAVAILABLE, away=True)
    sender = _sender(server)
    # It would fail here if it asked the server, which is away.
    for step in range(0, 3000, 100):
        sender.put(_metrics(100, step))
    assert server.taken == []
    server.back.set()
    assert sender.drain(60) == []
    assert [metric.step for metric in server.taken] == list(range(3000))
    sender.put(_metrics(1, 3000))
    assert sender.drain(60) == []
    assert server.taken[-1].step == 3000


def test_what_a_server_that_stays_away_did_not_take_is_given_back() -> None:
    sender = _sender(Server(away=True))
    sender.put(_metrics(5))
    assert [metric.step for metric in sender.drain(0.2)] == [0, 1, 2, 3, 4]


def test_a_refusal_is_raised_and_what_follows_is_sent() -> None:
    server = Server(BAD_REQUEST)
    sender = _sender(server)
    sender.put(_metrics(5))
    with pytest.raises(MlflowException, match="fault"):
        sender.drain(60)
    sender.put(_metrics(1, 7))
    assert sender.drain(60) == []
    assert [metric.step for metric in server.taken] == [7]


def test_faults_that_can_pass() -> None:
    assert not is_transient(ValueError())
    assert not is_transient(MlflowException("", BAD_REQUEST))
    assert is_transient(MlflowException("connection refused"))


def test_the_end_of_a_run_whose_server_is_away_is_sent_by_the_next(
    settings: Settings,
    tmp_path: Path,
    track_in: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    track_in(tmp_path)
    monkeypatch.setenv(WAIT, "0.2")

    def away(*_: object, **__: object) -> None:
        raise MlflowException("no answer", INTERNAL_ERROR)

    with monkeypatch.context() as patch, tracked_run("train", "far", settings, {}, {}) as run:
        run.log_metrics({"loss": 0.5, "odd": float("nan")}, 3)
        patch.setattr(run._client, "log_batch", away)
        patch.setattr(run._client, "set_terminated", away)
    assert f"the end of run {run.id} waits in state/unsent" in caplog.text
    assert [path.stem for path in offline_spool.waiting()] == [run.id]
    spooled = json.loads(offline_spool.waiting()[0].read_text())
    client = make_client()
    assert client.get_run(run.id).info.status == "RUNNING"
    [told] = sweep_runs(1, True)
    assert run.id in told.subject
    with tracked_run("train", "near", settings, {}, {}):
        found = client.get_run(run.id)
    assert (found.info.status, found.info.end_time) == ("FINISHED", spooled["end_ms"])
    assert found.data.metrics["loss"] == 0.5
    assert client.get_metric_history(run.id, "loss")[0].step == 3
    assert "odd" in found.data.metrics
    assert offline_spool.waiting() == []


def test_what_no_server_knows_stays(tmp_path: Path, track_in: Callable[[Path], None]) -> None:
    track_in(tmp_path)
    path = offline_spool.keep("0" * 32, _metrics(2), [], "FINISHED", 5)
    assert offline_spool.send(make_client()) == []
    assert offline_spool.waiting() == [path]
