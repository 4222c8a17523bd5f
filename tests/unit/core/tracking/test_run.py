"""Runs end with the status that fits how the process ended; no library reports its use to its makers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from components.core import tracking
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.files import file_hash
from components.core.tracking import PARENT_RUN, STORE, in_store, make_client, offline_spool, tracked_run
from components.core.tracking import run as run_module
from components.core.tracking.errors import WAIT, is_transient

pytestmark = pytest.mark.usefixtures("project")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tests of this module."""
    return tmp_path_factory.mktemp("tracking")


@pytest.fixture
def project(store: Path, track_in: Callable[[Path], None]) -> None:
    """The current folder is the store's, and runs go there."""
    track_in(store)


def _run(run_id: str) -> Any:
    return make_client().get_run(run_id)


def test_a_finished_run_has_settings_inputs_metrics_and_artifacts(settings: Settings, store: Path) -> None:
    data = store / "data.parquet"
    data.write_bytes(b"rows")
    (store / "dvc.lock").write_text("stages: {validate: {outs: [{path: data.parquet, md5: abc}]}}")
    with tracked_run("train", "paraclip", settings, {"lr": 0.1, "deep": {"er": 2}}, {"x": Path("data.parquet")}) as run:
        for step in range(450):
            run.log_metrics({"loss/total": float(step)}, step)
        run.log_artifact(data)
    found = _run(run.id)
    assert (found.info.status, found.data.params) == ("FINISHED", {"lr": "0.1", "deep.er": "2"})
    tags = {"stage": "train", "encoder": "paraclip", "input.x.sha256": file_hash(data), "input.x.dvc_md5": "abc"}
    assert found.data.tags.items() >= tags.items()
    assert found.inputs.dataset_inputs[0].dataset.name == "x"
    history = make_client().get_metric_history(run.id, "loss/total")
    assert sorted(metric.step for metric in history) == list(range(450))
    assert found.info.artifact_uri.startswith((store / STORE / "artifacts" / settings.dataset.name).as_uri())
    assert [file.path for file in make_client().list_artifacts(run.id)] == ["data.parquet"]
    uri = os.environ["MLFLOW_TRACKING_URI"]
    assert run.reference() == {"run_id": run.id, "experiment": settings.dataset.name, "tracking_uri": uri}


def test_artifacts_are_of_the_store(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tracked_run("train", "paraclip", settings, {}, {}) as run:
        (tmp_path / "weights").write_bytes(b"weights")
        run.log_artifact(tmp_path / "weights")
        run.log_model("weights", 1, {"loss": 0.5})
    client = make_client()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with in_store(client):
        assert [item.path for item in client.list_artifacts(run.id)] == ["weights"]
        assert Path(client.download_artifacts(run.id, "weights", str(tmp_path))).read_bytes() == b"weights"
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]


def test_an_exception_or_refused_metrics_fail_the_run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PARENT_RUN, "f" * 32)
    with pytest.raises(ValueError, match="no"), tracked_run("train", "bad", settings, {}, {}) as run:  # noqa: PT012
        run.log_metrics({"loss": 1.0}, 7)
        raise ValueError("no")
    found = _run(run.id)
    assert (found.info.status, found.data.metrics["loss"]) == ("FAILED", 1.0)
    assert found.data.metrics["processor_seconds"] > 0
    assert found.data.tags["mlflow.parentRunId"] == "f" * 32
    with pytest.raises(Exception, match="Invalid"), tracked_run("train", "odd", settings, {}, {}) as run:
        run.log_metrics({"recall@1": 1.0})
    assert _run(run.id).info.status == "FAILED"


def test_sigterm_and_interrupt_are_killed_and_a_second_signal_is_ignored(settings: Settings) -> None:
    before, cleaned = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(SystemExit) as stopped, tracked_run("train", "stopped", settings, {}, {}) as run:  # noqa: PT012
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append(True)
    assert (cleaned, stopped.value.code) == ([True], 143)
    assert _run(run.id).info.status == "KILLED"
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(KeyboardInterrupt), tracked_run("train", "stopped", settings, {}, {}) as run:
        raise KeyboardInterrupt
    assert _run(run.id).info.status == "KILLED"


def test_an_outer_handler_of_sigterm_decides_the_end(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cancelled(BaseException):
        """As Prefect's `TerminationSignal`, by which a flow ends as cancelled."""

    def cancel(*_: object) -> None:
        raise Cancelled

    before = signal.signal(signal.SIGTERM, cancel)
    try:
        with pytest.raises(Cancelled), tracked_run("flow", "cancelled", settings, {}, {}) as run:  # noqa: PT012
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        assert signal.getsignal(signal.SIGTERM) is cancel
    finally:
        signal.signal(signal.SIGTERM, before)
    assert _run(run.id).info.status == "KILLED"


def test_a_deleted_experiment_is_named_with_the_fix(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    with tracked_run("train", "first", settings, {}, {}):
        pass
    client, name = make_client(), settings.dataset.name
    number = client.get_experiment_by_name(name).experiment_id
    client.delete_experiment(number)
    with pytest.raises(InputError) as error, tracked_run("train", "second", settings, {}, {}):
        pass
    command = f"mlflow experiments restore --experiment-id {number}"
    assert str(error.value).startswith(f"MLflow's experiment '{name}' is deleted: restore it with `{command}`")
    client.restore_experiment(number)
    with tracked_run("train", "third", settings, {}, {}):
        pass


def test_a_signal_at_the_end_does_not_change_the_status(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = offline_spool.deliver

    def stopped(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        deliver(*given)

    monkeypatch.setattr(offline_spool, "deliver", stopped)
    with tracked_run("train", "late", settings, {}, {}) as run:
        pass
    assert _run(run.id).info.status == "FINISHED"


def test_a_signal_ends_a_servers_wait(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def away(*_: Any) -> None:
        raise MlflowException("no answer")

    monkeypatch.setattr(MlflowClient, "set_terminated", away)
    monkeypatch.setattr(run_module, "_KILLED_WAIT_S", 0.1)
    monkeypatch.setenv(WAIT, "500")
    monkeypatch.chdir(tmp_path)
    signaller = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    with pytest.raises(ValueError, match="in trouble"), tracked_run("train", "away", settings, {}, {}):  # noqa: PT012
        signaller.start()
        raise ValueError("in trouble")
    assert signaller.finished.is_set()


def test_out_of_memory_is_not_a_server_that_is_away() -> None:
    for cause in (MemoryError(), pa.ArrowMemoryError("malloc of size 4096 failed")):
        outer = MlflowException("malloc")
        outer.__cause__ = cause
        assert is_transient(MlflowException("malloc"))
        assert not is_transient(outer)
        outer.__cause__, outer.__context__ = None, cause
        assert not is_transient(outer)


def test_an_experiment_in_a_temporary_copy_has_the_store_of_its_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings, mlflow_database: Path
) -> None:
    """`dvc exp run --temp` creates a copy and deletes it at the end; two projects never share a store."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    copy = tmp_path / "one" / ".dvc" / "tmp" / "exps" / "standalone" / "tmpx"
    copy.mkdir(parents=True)
    for name in ("one", "two"):
        (tmp_path / name / STORE).mkdir(parents=True)
        shutil.copy(mlflow_database, tmp_path / name / STORE)
    monkeypatch.chdir(copy)
    with tracked_run("train", "one", settings, {}, {}) as run:
        run.log_artifact(Path(__file__))
    shutil.rmtree(copy)
    monkeypatch.chdir(tmp_path / "one")
    assert [artifact.path for artifact in make_client().list_artifacts(run.id)] == [Path(__file__).name]
    monkeypatch.chdir(tmp_path / "two")
    with pytest.raises(MlflowException, match="not found"):
        make_client().get_run(run.id)


def test_evaluation_joins_the_training_run(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tracked_run("train", "paraclip", settings, {}, {}) as run:
        (tmp_path / "run.json").write_text(json.dumps(run.reference()))
    # Without tables there is nothing to look for among the run's artifacts, which takes a request.
    with monkeypatch.context() as patch:
        patch.setattr("mlflow.MlflowClient.list_artifacts", None)
        tracking.add_metrics(tmp_path, {"retrieval/t2i_recall_at_5": 0.5})
    found = _run(run.id)
    assert (found.data.metrics["retrieval/t2i_recall_at_5"], found.info.status) == (0.5, "FINISHED")
    table = {"metric": ["a/tier_rare/b", "a/b"], "value": [0.25, 0.5]}
    for _ in range(2):
        tracking.add_metrics(tmp_path, {"a/b": 0.5}, {"evaluation_1": table})
    logged = make_client().load_table(found.info.experiment_id, "evaluation_1.json", [run.id])
    assert logged.to_dict("list") == table
    # An encoder without a run, or whose run another store has, is not an error.
    tracking.add_metrics(tmp_path / "none", {"a": 1.0})
    (tmp_path / "run.json").write_text(json.dumps({"run_id": "0" * 32}))
    tracking.add_metrics(tmp_path, {"a": 1.0})


REPO = Path(__file__).parents[4]
# A process that other variables mark as a test or as continuous integration reports nothing anyway.
_HIDING = ("CI", "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "GITHUB_ACTIONS", "BUILD_ID", "BUILD_NUMBER")
_SWITCHES = ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "DVC_NO_ANALYTICS")
_CHECKS = {
    "mlflow": "import components.core.tracking; from mlflow.telemetry import get_telemetry_client as of; print(of())",
    "prefect": "import flows; from prefect._internal.analytics.enabled import is_telemetry_enabled as on; print(on())",
    "dvc": "from dvc.analytics import is_enabled as on; print(on())",
}


@pytest.mark.parametrize("library", _CHECKS)
@pytest.mark.parametrize("given", [{}, {"DO_NOT_TRACK": "1"}])
def test_no_library_reports_its_use(library: str, given: dict[str, str], tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name not in (*_HIDING, *_SWITCHES)}
    environment = kept | given | {"PYTHONPATH": str(REPO), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", _CHECKS[library]]
    done = subprocess.run(command, env=environment, cwd=REPO, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("None", "False")
