"""Metrics reach a server that was away, in order and once; a refusal is told; what stays unsent is kept and sent."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INTERNAL_ERROR, TEMPORARILY_UNAVAILABLE

from components.core.settings import Settings
from components.sweeping.tracked_runs import sweep_runs
from components.tracking import STORE, make_client, tracked_run
from components.tracking import offline_spool as unsent
from components.tracking.asynchronous_metrics import Outbox
from components.tracking.retry_policy import WAIT, is_passing


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


def _outbox(server: Server) -> Outbox:
    return Outbox(server, "run")  # type: ignore[arg-type]


def test_putting_never_waits_and_everything_arrives_in_order() -> None:
    server = Server(INTERNAL_ERROR, TEMPORARILY_UNAVAILABLE, away=True)
    outbox = _outbox(server)
    start = time.monotonic()
    for step in range(0, 3000, 100):
        outbox.put(_metrics(100, step))
    assert time.monotonic() - start < 0.5
    assert server.taken == []
    server.back.set()
    assert outbox.drain(60) == []
    assert [metric.step for metric in server.taken] == list(range(3000))
    outbox.put(_metrics(1, 3000))
    assert outbox.drain(60) == []
    assert server.taken[-1].step == 3000


def test_what_a_server_that_stays_away_did_not_take_is_given_back() -> None:
    outbox = _outbox(Server(away=True))
    outbox.put(_metrics(5))
    assert [metric.step for metric in outbox.drain(0.2)] == [0, 1, 2, 3, 4]


def test_a_refusal_is_raised_and_what_follows_is_sent() -> None:
    server = Server(BAD_REQUEST)
    outbox = _outbox(server)
    outbox.put(_metrics(5))
    with pytest.raises(MlflowException, match="fault"):
        outbox.drain(60)
    outbox.put(_metrics(1, 7))
    assert outbox.drain(60) == []
    assert [metric.step for metric in server.taken] == [7]


def test_faults_that_can_pass() -> None:
    assert not is_passing(ValueError())
    assert not is_passing(MlflowException("", BAD_REQUEST))
    assert is_passing(MlflowException("connection refused"))


def test_the_end_of_a_run_whose_server_is_away_is_sent_by_the_next(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / STORE / 'mlflow.db'}")
    monkeypatch.setenv(WAIT, "0.2")

    def away(*_: object, **__: object) -> None:
        raise MlflowException("no answer", INTERNAL_ERROR)

    with monkeypatch.context() as patch, tracked_run("train", "far", settings, {}, {}) as run:
        run.log_metrics({"loss": 0.5, "odd": float("nan")}, 3)
        patch.setattr(run._client, "log_batch", away)
        patch.setattr(run._client, "set_terminated", away)
    assert f"the end of run {run.id} waits in state/unsent" in caplog.text
    assert [path.stem for path in unsent.waiting()] == [run.id]
    kept = json.loads(unsent.waiting()[0].read_text())
    client = make_client()
    assert client.get_run(run.id).info.status == "RUNNING"
    [told] = sweep_runs(1, True)
    assert run.id in told.subject
    with tracked_run("train", "near", settings, {}, {}):
        found = client.get_run(run.id)
    assert (found.info.status, found.info.end_time) == ("FINISHED", kept["end_ms"])
    assert found.data.metrics["loss"] == 0.5
    assert client.get_metric_history(run.id, "loss")[0].step == 3
    assert "odd" in found.data.metrics
    assert unsent.waiting() == []


def test_what_no_server_knows_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / STORE / 'mlflow.db'}")
    path = unsent.keep("0" * 32, _metrics(2), [], "FINISHED", 5)
    assert unsent.send(make_client()) == []
    assert unsent.waiting() == [path]
