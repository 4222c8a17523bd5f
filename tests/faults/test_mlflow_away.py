"""MLflow killed while a method trains: the training continues, and the restarted server receives everything."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from components.core.settings import load_settings
from components.core.tracking import RUN_FILE, tracked_run
from components.core.tracking.errors import WAIT
from components.encoders.adapter.encoder import Encoder
from tests.support.mlflow_servers import tracking_server
from tests.support.ports import free_ports
from tests.support.stage_project import make_trainable, write_params
from tests.support.toy_world import world_settings
from tests.support.warm_stages import WarmStage

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
AWAY_S = float(os.environ.get("CLIPTUNE_TEST_AWAY_S", "0"))
"""Least seconds without the server; meanwhile the training continues."""
NAME = "tried"
PER_EPOCH, CHECKPOINT_EVERY, VALIDATE_EVERY = 27, 20, 50
EPOCHS = 25 + round(10 * AWAY_S)
MISSED = 8 * CHECKPOINT_EVERY
"""Steps without the server."""
PATIENCE_S = 300.0


def _start(project: Path, epochs: int, address: str, **environment: str) -> WarmStage:
    """A running stage that logs every step."""
    make_trainable(project)
    loop = {"checkpoint_every": CHECKPOINT_EVERY, "validate_every": VALIDATE_EVERY}
    settings = world_settings(Path("state/train"), **loop).model_dump(mode="json", by_alias=True)
    entry = {"method": "semclip", "train_data": "data/validated", "batch_size": 4, "epochs": epochs}
    methods = {NAME: entry | {"accumulate": 1, "lr": 1e-4}}
    write_params(project, settings | {"methods": methods, "compare_encoders": ["base", NAME]})
    environment["MLFLOW_TRACKING_URI"] = address
    return WarmStage(project, "components.training.train", "--method", NAME, environment=environment)


def _wait(stage: WarmStage, until: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not until():
        assert stage.runs, stage.err.read_text()
        assert time.monotonic() < end, stage.err.read_text()
        time.sleep(0.02)


def _is_tracked(address: str) -> bool:
    """Whether metrics of a run have reached the server."""
    client = MlflowClient(address)
    experiment = client.get_experiment_by_name("synthetic")
    runs = client.search_runs([experiment.experiment_id]) if experiment else []
    return bool(runs) and runs[0].info.status == "RUNNING" and "loss/total" in runs[0].data.metrics


def _steps(folder: Path) -> int:
    """The step of the newest checkpoint, 0 before there is one."""
    found = [re.search(r"step-(\d+)$", path.name) for path in folder.glob("state/train/*/step-*")]
    return max((int(match[1]) for match in found if match), default=0)


def _assert_complete(client: MlflowClient, run_id: str, epochs: int) -> None:
    """The run ended well, every step is in the history of its metrics once, and the encoder is an artifact."""
    assert client.get_run(run_id).info.status == "FINISHED"
    last = epochs * PER_EPOCH
    validations = [*range(VALIDATE_EVERY, last, VALIDATE_EVERY), last]
    every = list(range(1, last + 1))
    for name, steps in (("loss/total", every), ("train/lr", every), ("validation/loss", validations)):
        assert [metric.step for metric in client.get_metric_history(run_id, name)] == steps, name
    with pytest.MonkeyPatch.context() as patch:
        # MLflow looks a run's logged models up where the environment says, not where its client is.
        patch.setenv("MLFLOW_TRACKING_URI", client.tracking_uri)
        written = {file.path for file in client.list_artifacts(run_id, NAME)}
    assert {f"{NAME}/encoder.json", f"{NAME}/encoder.safetensors", f"{NAME}/{RUN_FILE}"} <= written


def _run_id(project: Path) -> str:
    """The run of the encoder, which must be sound."""
    encoder = project / "models" / NAME
    assert Encoder.load(encoder).sidecar.name == NAME
    return str(json.loads((encoder / RUN_FILE).read_text())["run_id"])


def test_the_training_continues_and_the_restarted_server_receives_everything(tmp_path: Path) -> None:
    project, (port,) = tmp_path / "project", free_ports(1)
    # The end of each block is a SIGKILL.
    server = (port, tmp_path / "server", f"sqlite:///{tmp_path / 'server' / 'mlflow.db'}")
    with tracking_server(*server) as address:
        stage = _start(project, EPOCHS, address)
        _wait(stage, lambda: _is_tracked(address))
    killed, before = time.monotonic(), _steps(project)
    _wait(stage, lambda: _steps(project) >= before + MISSED and time.monotonic() >= killed + AWAY_S)
    with tracking_server(*server) as address:
        ended = stage.wait()
        assert ended.code == 0, ended.errors
        _assert_complete(MlflowClient(address), _run_id(project), EPOCHS)
    assert ended.errors.count("the metrics of run") == 1
    assert not list(project.glob("state/unsent/*"))


def test_without_the_server_it_ends_and_the_next_run_sends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, (port,), epochs = tmp_path / "project", free_ports(1), 15
    server = (port, tmp_path / "server", f"sqlite:///{tmp_path / 'server' / 'mlflow.db'}")
    with tracking_server(*server) as address:
        stage = _start(project, epochs, address, **{WAIT: "2"})
        _wait(stage, lambda: _is_tracked(address))
    ended = stage.wait()
    assert ended.code == 0, ended.errors
    run_id = _run_id(project)
    assert ended.errors.count(f"the end of run {run_id} waits in state/unsent/{run_id}.json") == 1

    monkeypatch.chdir(project)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    with tracking_server(*server) as address:
        client = MlflowClient(address)
        assert client.get_run(run_id).info.status == "RUNNING"
        with tracked_run("train", "next", load_settings(), {}, {}):
            _assert_complete(client, run_id, epochs)
    assert not list(project.glob("state/unsent/*"))
