"""Runs end with the status that fits how the process ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from components import tracking
from components.core.files import file_hash
from components.core.settings import Settings
from components.tracking import PARENT_RUN, STORE, make_client, tracked_run

pytestmark = pytest.mark.usefixtures("project")
REPO = Path(__file__).parents[3]


def _run(run_id: str) -> Any:
    return make_client().get_run(run_id)


def test_finished_run_holds_all(settings: Settings, store: Path) -> None:
    data = store / "data.parquet"
    data.write_bytes(b"rows")
    (store / "dvc.lock").write_text("stages: {validate: {outs: [{path: data.parquet, md5: abc}]}}")
    with tracked_run("train", "paraclip", settings, {"lr": 0.1, "deep": {"er": 2}}, {"x": Path("data.parquet")}) as run:
        for step in range(450):
            run.log_metrics({"loss/total": float(step)}, step)
        run.log_artifact(data)
    found = _run(run.id)
    assert found.info.status == "FINISHED"
    assert found.data.params == {"lr": "0.1", "deep.er": "2"}
    assert (found.data.tags["stage"], found.data.tags["encoder"]) == ("train", "paraclip")
    assert found.data.tags["input.x.sha256"] == file_hash(data)
    assert found.data.tags["input.x.dvc_md5"] == "abc"
    assert found.inputs.dataset_inputs[0].dataset.name == "x"
    history = make_client().get_metric_history(run.id, "loss/total")
    assert sorted(metric.step for metric in history) == list(range(450))
    assert found.info.artifact_uri.startswith((store / STORE / "artifacts" / settings.world.name).as_uri())
    assert [file.path for file in make_client().list_artifacts(run.id)] == ["data.parquet"]
    assert run.reference() == {
        "run_id": run.id,
        "experiment": settings.world.name,
        "tracking_uri": os.environ["MLFLOW_TRACKING_URI"],
    }


def test_parent_comes_from_the_environment(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARENT_RUN, "f" * 32)
    with tracked_run("train", "child", settings, {}, {}) as run:
        pass
    assert _run(run.id).data.tags["mlflow.parentRunId"] == "f" * 32


def test_exception_is_failed_and_keeps_metrics(settings: Settings) -> None:
    with pytest.raises(ValueError, match="no"), tracked_run("train", "bad", settings, {}, {}) as run:  # noqa: PT012
        run.log_metrics({"loss": 1.0}, 7)
        raise ValueError("no")
    assert _run(run.id).info.status == "FAILED"
    assert _run(run.id).data.metrics == {"loss": 1.0}


def test_interrupt_is_killed(settings: Settings) -> None:
    with pytest.raises(KeyboardInterrupt), tracked_run("train", "stopped", settings, {}, {}) as run:
        raise KeyboardInterrupt
    assert _run(run.id).info.status == "KILLED"


def test_handler_is_put_back(settings: Settings) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stopped, tracked_run("train", "stopped", settings, {}, {}) as run:  # noqa: PT012
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert stopped.value.code == 143
    assert _run(run.id).info.status == "KILLED"
    assert signal.getsignal(signal.SIGTERM) is before


def test_second_signal_does_not_disturb_the_cleaning_up(settings: Settings) -> None:
    cleaned = []
    with pytest.raises(SystemExit), tracked_run("train", "stopped twice", settings, {}, {}):  # noqa: PT012
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)
    assert cleaned


def test_signal_does_not_disturb_the_end(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with tracked_run("train", "late", settings, {}, {}) as run:
        monkeypatch.setattr(run, "flush", lambda _within_s: os.kill(os.getpid(), signal.SIGTERM))
    assert _run(run.id).info.status == "FINISHED"


def test_status_is_set_though_the_last_metrics_are_refused(settings: Settings) -> None:
    with pytest.raises(Exception, match="Invalid"), tracked_run("train", "odd", settings, {}, {}) as run:
        run.log_metrics({"recall@1": 1.0})
    assert _run(run.id).info.status != "RUNNING"


_VICTIM = """
import sys, time
from pathlib import Path
from components.core.settings import load_settings
from components.tracking import tracked_run
with tracked_run("train", "victim", load_settings(Path(sys.argv[1])), {}, {}) as run:
    run.log_metrics({"loss": 1.0}, 1)
    Path("victim").write_text(run.id)
    time.sleep(60)
"""


@pytest.mark.integration
def test_terminated_process_is_killed(store: Path) -> None:
    command = [sys.executable, "-c", _VICTIM, str(REPO / "params.yaml")]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(REPO)})
    while not (store / "victim").is_file() or not (store / "victim").read_text():
        assert process.poll() is None
        time.sleep(0.05)
    # Twice, as when a group and its member are both told to stop.
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143
    found = _run((store / "victim").read_text())
    assert found.info.status == "KILLED"
    assert found.data.metrics == {"loss": 1.0}


def test_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:5000")
    assert tracking.tracking_uri() == "http://127.0.0.1:5000"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert tracking.tracking_uri() == "sqlite:///mlruns/mlflow.db"


def test_evaluation_joins_the_training_run(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tracked_run("train", "paraclip", settings, {}, {}) as run:
        (tmp_path / "run.json").write_text(json.dumps(run.reference()))
    # Without tables there is nothing to look for among the run's artifacts, which takes a request.
    monkeypatch.setattr("mlflow.MlflowClient.list_artifacts", None)
    tracking.add_metrics(tmp_path, {"retrieval/t2i_recall_at_5": 0.5})
    assert _run(run.id).data.metrics == {"retrieval/t2i_recall_at_5": 0.5}
    assert _run(run.id).info.status == "FINISHED"


def test_an_evaluation_is_also_a_table_of_the_run_and_said_once(settings: Settings, tmp_path: Path) -> None:
    with tracked_run("train", "paraclip", settings, {}, {}) as run:
        (tmp_path / "run.json").write_text(json.dumps(run.reference()))
    table = {"metric": ["a/tier_rare/b", "a/b"], "value": [0.25, 0.5]}
    for _ in range(2):
        tracking.add_metrics(tmp_path, {"a/b": 0.5}, {"evaluation_1": table})
    found = tracking.make_client().load_table(_run(run.id).info.experiment_id, "evaluation_1.json", [run.id])
    assert found.to_dict("list") == table


def test_evaluation_of_an_untracked_encoder_is_no_error(tmp_path: Path) -> None:
    tracking.add_metrics(tmp_path, {"a": 1.0})
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "0" * 32}))
    tracking.add_metrics(tmp_path, {"a": 1.0})
