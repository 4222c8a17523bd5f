"""What a server could not take follows later: artifacts with the run's end, evaluations by themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import BAD_REQUEST, TEMPORARILY_UNAVAILABLE

from components.core.settings import Settings
from components.tracking import RUN_FILE, add_metrics, make_client, offline_spool, run, tracked_run
from components.tracking.retry_policy import WAIT, call_with_retries, fail_fast

RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


@pytest.fixture(autouse=True)
def _store(tmp_path: Path, track_in: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch) -> None:
    track_in(tmp_path)
    monkeypatch.setenv(WAIT, "0.1")
    monkeypatch.delenv(RETRIES, raising=False)


def _away(*_: object, **__: object) -> None:
    raise MlflowException("no answer", TEMPORARILY_UNAVAILABLE)


def _leave_encoders(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run whose server was away from its two artifacts on; returns its id."""
    for name in ("kept", "changed"):
        (Path(name) / "deep").mkdir(parents=True)
        (Path(name) / "deep" / "weights").write_text(name)
    with monkeypatch.context() as patch, tracked_run("train", "far", settings, {}, {}) as tracked:
        patch.setattr(run, "upload", _away)
        patch.setattr(tracked._client, "set_terminated", _away)
        tracked.log_artifact(Path("kept"))
        tracked.log_artifact(Path("changed"))
    return tracked.id


def test_artifacts_follow_unless_they_changed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = _leave_encoders(settings, monkeypatch)
    Path("changed/deep/weights").write_text("another")
    client = make_client()
    assert offline_spool.send(client) == [left]
    assert client.get_run(left).info.status == "FINISHED"
    assert [file.path for file in client.list_artifacts(left)] == ["kept"]
    assert [file.path for file in client.list_artifacts(left, "kept/deep")] == ["kept/deep/weights"]
    assert f"changed has changed since run {left} wrote it" in caplog.text
    assert offline_spool.waiting() == []


def test_an_end_that_another_process_sent_is_no_error(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    _leave_encoders(settings, monkeypatch)
    (path,) = offline_spool.waiting()
    monkeypatch.setattr(offline_spool, "waiting", lambda _folder: [path, path])
    assert offline_spool.send(make_client()) == [path.stem]


def test_an_artifact_that_is_refused_fails_the_run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MlflowException("no", BAD_REQUEST)

    monkeypatch.setattr(run, "upload", refuse)
    with pytest.raises(MlflowException, match="no"), tracked_run("train", "far", settings, {}, {}) as tracked:
        tracked.log_artifact(Path("kept"))
    assert make_client().get_run(tracked.id).info.status == "FAILED"


def test_a_call_is_repeated_while_the_server_is_away_and_no_longer_than_told() -> None:
    calls: list[int] = []

    def back_at_the_second() -> None:
        calls.append(1)
        if len(calls) < 2:
            _away()

    call_with_retries(back_at_the_second, 60)
    assert len(calls) == 2
    with pytest.raises(MlflowException, match="no answer"):
        call_with_retries(_away, 0)


def test_mlflows_own_retries_are_cut_unless_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with fail_fast():
        assert os.environ[RETRIES] == "1"
    assert RETRIES not in os.environ
    monkeypatch.setenv(RETRIES, "3")
    with fail_fast():
        assert os.environ[RETRIES] == "3"
    assert os.environ[RETRIES] == "3"


def test_evaluations_follow_when_the_server_is_back(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tracked_run("train", "far", settings, {}, {}) as tracked:
        Path(RUN_FILE).write_text(json.dumps(tracked.reference()))
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_batch", _away)
        add_metrics(Path(), {"sts/all": 0.5})
        add_metrics(Path(), {"retrieval/ao_at_10": 0.25})
    assert caplog.text.count("the next run sends it") == 2
    client = make_client()
    assert client.get_run(tracked.id).data.metrics == {}
    assert offline_spool.send(client) == [tracked.id] * 2
    assert client.get_run(tracked.id).data.metrics == {"sts/all": 0.5, "retrieval/ao_at_10": 0.25}
    assert client.get_run(tracked.id).info.status == "FINISHED"
    assert offline_spool.waiting() == []


def test_an_evaluation_that_is_refused_is_told_and_not_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with tracked_run("train", "far", settings, {}, {}) as tracked:
        Path(RUN_FILE).write_text(json.dumps(tracked.reference()))

    def refuse(*_: object, **__: object) -> None:
        raise MlflowException("no rights", BAD_REQUEST)

    monkeypatch.setattr(MlflowClient, "log_batch", refuse)
    add_metrics(Path(), {"sts/all": 0.5})
    assert "refuses the evaluation of . (no rights)" in caplog.text
    assert offline_spool.waiting() == []
