"""An unavailable server receives metrics in order and once when it is back; the rest waits in the spool."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, INTERNAL_ERROR, TEMPORARILY_UNAVAILABLE
from mlflow.tracking._tracking_service.utils import _artifact_repos_cache

from components.core.settings import Settings
from components.core.system.errors import InputError, shown_address
from components.core.tracking import RUN_FILE, STORE, add_metrics, address, make_client, offline_spool, tracked_run
from components.core.tracking.address import relocate
from components.core.tracking.errors import WAIT, call_with_retries, explained, fail_fast, is_transient
from components.core.tracking.offline_spool import AsynchronousMetrics
from tests.support.waiting import wait_until

RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


@pytest.fixture
def spool(tmp_path: Path, track_in: Callable[[Path], None]) -> None:
    """An empty spool and a store."""
    track_in(tmp_path)


def _away(*_: object, **__: object) -> None:
    raise MlflowException("no answer", TEMPORARILY_UNAVAILABLE)


def _refuse(*_: object, **__: object) -> None:
    raise MlflowException("no rights", BAD_REQUEST)


class Server:
    """Accepts metrics unless it is unavailable or refuses them."""

    def __init__(self, *faults: int, available: bool = True) -> None:
        self.faults = list(faults)
        self.available = threading.Event()
        if available:
            self.available.set()
        self.accepted: list[Any] = []

    def log_batch(self, _run_id: str, metrics: list[Any]) -> None:
        if not self.available.is_set():
            _away()
        if self.faults:
            raise MlflowException("fault", self.faults.pop(0))
        self.accepted += metrics


def _metrics(count: int, begin: int = 0) -> list[Metric]:
    return [Metric("loss", float(step), 1, step) for step in range(begin, begin + count)]


def test_metrics_are_sent_in_order_returned_or_raised() -> None:
    server = Server(INTERNAL_ERROR, TEMPORARILY_UNAVAILABLE, available=False)
    sender = AsynchronousMetrics(server, "run")  # type: ignore[arg-type]
    for step in range(0, 3000, 100):
        sender.put(_metrics(100, step))
    assert server.accepted == []
    server.available.set()
    # Fewer than 200 wait for others.
    wait_until(lambda: len(server.accepted) > 2800, 60, lambda: f"{len(server.accepted)} arrived")
    left = sender.stop()
    assert len(left) < 200
    assert [metric.step for metric in (*server.accepted, *left)] == list(range(3000))
    unavailable = AsynchronousMetrics(Server(available=False), "run")  # type: ignore[arg-type]
    for step in range(0, 600, 150):
        unavailable.put(_metrics(150, step))
    begun = time.monotonic()
    assert [metric.step for metric in unavailable.stop()] == list(range(600))
    assert time.monotonic() - begun < 1
    refusing = AsynchronousMetrics(Server(BAD_REQUEST), "run")  # type: ignore[arg-type]
    refusing.put(_metrics(200))
    with pytest.raises(MlflowException, match="fault"):
        wait_until(lambda: refusing.put(_metrics(1, 7)), 60, lambda: "nothing was raised")


@pytest.mark.usefixtures("spool")
def test_the_next_run_sends_the_end_of_a_run_whose_server_was_unavailable(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("kept", "changed"):
        (Path(name) / "deep").mkdir(parents=True)
        (Path(name) / "deep" / "weights").write_text(name)
    with monkeypatch.context() as patch, tracked_run("train", "far", settings, {}, {}) as far:
        far.log_metrics({"loss": 0.5, "odd": float("nan")}, 3)
        patch.setenv(WAIT, "0.1")
        patch.setattr(far._client, "log_artifacts", _away)
        for call in ("log_batch", "set_terminated"):
            patch.setattr(far._client, call, _away)
        far.log_artifact(Path("kept"))
        far.log_artifact(Path("changed"))
    assert f"the end of run {far.id} waits in state/unsent" in caplog.text
    (path,) = offline_spool.waiting()
    assert offline_spool.run_of(path) == far.id
    end_ms = json.loads(path.read_text())["end_ms"]
    Path("changed/deep/weights").write_text("another")
    # A run that this server does not have keeps its file.
    unknown = offline_spool.keep("0" * 32, offline_spool.Unsent(_metrics(2), status="FINISHED", end_ms=5))
    client = make_client()
    with tracked_run("train", "near", settings, {}, {}):
        sent = client.get_run(far.id)
    assert (sent.info.status, sent.info.end_time) == ("FINISHED", end_ms)
    assert set(sent.data.metrics) == {"loss", "odd", "processor_seconds"}
    (metric,) = client.get_metric_history(far.id, "loss")
    assert (metric.value, metric.step) == (0.5, 3)
    assert [file.path for file in client.list_artifacts(far.id)] == ["kept"]
    assert [file.path for file in client.list_artifacts(far.id, "kept/deep")] == ["kept/deep/weights"]
    assert f"changed has changed since run {far.id} wrote it" in caplog.text
    assert offline_spool.waiting() == [unknown]
    # Another process may have sent and removed a file.
    monkeypatch.setattr(offline_spool, "waiting", lambda _folder: [path])
    assert offline_spool.send(client) == []


@pytest.mark.usefixtures("spool")
def test_an_artifact_that_is_refused_fails_the_run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MlflowClient, "log_artifact", _refuse)
    with pytest.raises(MlflowException, match="no rights"), tracked_run("train", "far", settings, {}, {}) as tracked:
        tracked.log_artifact(Path("kept"))
    assert make_client().get_run(tracked.id).info.status == "FAILED"


@pytest.mark.usefixtures("spool")
def test_evaluations_are_sent_later_unless_they_are_refused(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tracked_run("train", "far", settings, {}, {}) as tracked:
        Path(RUN_FILE).write_text(json.dumps(tracked.reference()))
    with monkeypatch.context() as patch:
        patch.setenv(WAIT, "0.1")
        patch.setattr(MlflowClient, "log_batch", _away)
        add_metrics(Path(), {"sts/all": 0.5}, {"groups": {"group": ["dogs"], "value": [0.5]}})
        add_metrics(Path(), {"retrieval/ao_at_10": 0.25})
        patch.setattr(MlflowClient, "log_batch", _refuse)
        add_metrics(Path(), {"refused": 0.5})
    assert caplog.text.count("the next run sends it") == 2
    assert "refuses the evaluation of . (no rights)" in caplog.text
    client = make_client()
    assert set(client.get_run(tracked.id).data.metrics) == {"processor_seconds"}
    assert offline_spool.send(client) == [tracked.id] * 2
    sent = client.get_run(tracked.id).data.metrics
    assert client.load_table(client.get_run(tracked.id).info.experiment_id, "groups.json", [tracked.id]).to_dict(
        "list"
    ) == {"group": ["dogs"], "value": [0.5]}
    assert sent == {"sts/all": 0.5, "retrieval/ao_at_10": 0.25, "processor_seconds": sent["processor_seconds"]}
    assert offline_spool.waiting() == []


def test_transient_errors_are_retried_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = (ValueError(), MlflowException("", BAD_REQUEST), MlflowException("connection refused"))
    assert [is_transient(error) for error in errors] == [False, False, True]
    server = Server(TEMPORARILY_UNAVAILABLE)
    call_with_retries(lambda: server.log_batch("run", _metrics(1)), 60)
    assert len(server.accepted) == 1
    with pytest.raises(MlflowException, match="no answer"):
        call_with_retries(_away, 0)
    for before, within in (("3", "3"), (None, "1")):
        monkeypatch.setenv(RETRIES, before) if before else monkeypatch.delenv(RETRIES)
        with fail_fast():
            assert os.environ[RETRIES] == within
        assert os.environ.get(RETRIES) == before


def test_passwords_are_not_shown() -> None:
    shown = {
        "postgresql://me:s3cret@host:5432/mlflow": "postgresql://***@host:5432/mlflow",
        "https://me:s3@cret@host": "https://***@host",
        "https://t0ken@host": "https://***@host",
        "postgresql://host/mlflow?password=s3cret&ssl=on": "postgresql://host/mlflow?password=***&ssl=on",
        "https://host/hook?access_token=s3cret": "https://host/hook?access_token=***",
        "https://host.example:5000/a@b": "https://host.example:5000/a@b",
        "http://host:5000 is away, ask a@b": "http://host:5000 is away, ask a@b",
        "sqlite:///mlruns/mlflow.db": "sqlite:///mlruns/mlflow.db",
    }
    assert {address: shown_address(address) for address in shown} == shown
    line = r"^MLflow: API request to http://\*\*\*@host failed: correct MLFLOW_TRACKING_URI"
    with pytest.raises(InputError, match=line), explained():
        raise MlflowException("API request to http://bob:s3cr3t@host\nfailed")


@pytest.fixture
def made(tmp_path: Path, track_in: Callable[[Path], None], settings: Settings) -> Path:
    """A project with one run, its artifact, a logged model and a registered version."""
    project = tmp_path / "pro ject ü"
    project.mkdir()
    track_in(project)
    Path("weights").mkdir()
    for file in (Path("a.txt"), Path("weights/one")):
        file.write_text("content")
    with tracked_run("train", "one", settings, {}, {}) as run:
        run.log_artifact(Path("a.txt"))
        run.log_model("one", 1, {}, files=Path("weights"))
    client = make_client()
    client.create_registered_model("text-encoder")
    source = f"{client.get_run(run.id).info.artifact_uri}/registered/x"
    client.create_model_version("text-encoder", source, run.id)
    return project


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _used(folder: Path, name: str) -> None:
    """Read the run's artifact and write another one, as a command in the project does."""
    client = _client(folder)
    (run,) = client.search_runs([client.get_experiment_by_name(name).experiment_id])
    for place in (run.info.artifact_uri, client.get_model_version("text-encoder", "1").source):
        assert place.startswith(f"{folder.resolve().as_uri()}/mlruns/artifacts/"), place
    assert Path(client.download_artifacts(run.info.run_id, "a.txt")).read_text() == "content"
    new = folder / "b.txt"
    new.write_text("new")
    client.log_artifact(run.info.run_id, str(new))
    assert list((folder / STORE / "artifacts").rglob("b.txt"))


def _client(folder: Path) -> MlflowClient:
    # Another process has no memory of the project's earlier place.
    _artifact_repos_cache.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / STORE / 'mlflow.db'}")
        return make_client()


def test_a_moved_project_finds_its_artifacts(made: Path, tmp_path: Path, settings: Settings) -> None:
    moved = made.rename(tmp_path / "moved")
    _used(moved, settings.dataset.name)
    assert not made.exists()
    with closing(sqlite3.connect(moved / STORE / "mlflow.db")) as connection:
        assert made.name not in "".join(connection.iterdump())


@pytest.mark.parametrize("left_out", [(), ("artifacts",)])
def test_a_copy_spares_the_original(made: Path, tmp_path: Path, settings: Settings, left_out: tuple[str, ...]) -> None:
    before = _files(made)
    copy = shutil.copytree(made, tmp_path / "copy", ignore=shutil.ignore_patterns(*left_out))
    client = _client(copy)
    (run,) = client.search_runs([client.get_experiment_by_name(settings.dataset.name).experiment_id])
    client.log_artifact(run.info.run_id, str(copy / "a.txt"), "more")
    assert list((copy / STORE / "artifacts").rglob("more/a.txt"))
    assert _files(made) == before
    _used(made, settings.dataset.name)


def test_places_of_projects_that_share_a_database_stay(made: Path, tmp_path: Path, settings: Settings) -> None:
    shared = tmp_path / "shared" / STORE / "mlflow.db"
    shared.parent.mkdir(parents=True)
    (made / STORE / "mlflow.db").rename(shared)
    relocate(shared)
    experiment = MlflowClient(f"sqlite:///{shared}").get_experiment_by_name(settings.dataset.name)
    assert experiment.artifact_location.startswith(made.as_uri())


def test_opening_waits_for_its_lock_for_a_limited_time(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = made / STORE / "mlflow.db.lock"
    assert lock.exists()
    monkeypatch.setattr(address, "_LOCK_S", 0.1)
    with FileLock(lock), pytest.raises(InputError, match=r"mlflow\.db\.lock is held by another process"):
        make_client()
    # Of another user: the tables exist, and nothing needs the lock.
    lock.unlink()
    lock.mkdir()
    make_client().search_experiments()
    (made / STORE / "mlflow.db").unlink()
    with pytest.raises(InputError, match=r"mlflow\.db\.lock cannot be written"):
        make_client()
