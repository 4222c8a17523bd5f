"""MLflow killed while a method trains on: what it missed reaches it when it is back, even after the training's end."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from mlflow import MlflowClient

from components.core.settings import load_settings
from components.encoders.adapter.encoder import Encoder
from components.sweeping.sweep import sweep_runs
from components.tracking import RUN_FILE, tracked_run
from components.tracking.errors import WAIT
from tests.integration.conftest import free_ports
from tests.support.mlflow_servers import tracking_server
from tests.support.stage_project import make_trainable, write_params
from tests.support.toy_world import world_settings
from tests.support.warm_stages import WarmStage

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
AWAY_S = float(os.environ.get("CLIPTUNE_TEST_AWAY_S", "0"))
"""How long the server is away at least; in this time the training goes on."""
NAME = "tried"
PER_EPOCH, CHECKPOINT_EVERY, VALIDATE_EVERY = 27, 20, 50
EPOCHS = 25 + round(10 * AWAY_S)
MISSED = 8 * CHECKPOINT_EVERY
"""Steps that are done while the server is away."""
PATIENCE_S = 300.0


class Server:
    """An MLflow server that can be killed and started again on the same port and database."""

    def __init__(self, folder: Path) -> None:
        self.folder, (self.port,) = folder, free_ports(1)
        self.address = f"http://127.0.0.1:{self.port}"

    def running(self) -> AbstractContextManager[str]:
        """The server; SIGKILL ends it with the block."""
        return tracking_server(self.port, self.folder, f"sqlite:///{self.folder / 'mlflow.db'}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Server:
    """Not running; making its database takes longer than anything else here."""
    return Server(tmp_path_factory.mktemp("server"))


def _start(folder: Path, epochs: int, server: Server, **environment: str) -> WarmStage:
    """The stage at work; every step is logged."""
    make_trainable(folder)
    settings = world_settings(
        Path("state/train"), checkpoint_every=CHECKPOINT_EVERY, validate_every=VALIDATE_EVERY
    ).model_dump(mode="json", by_alias=True)
    entry = {
        "method": "semclip",
        "train_data": "data/validated",
        "batch_size": 4,
        "epochs": epochs,
        "accumulate": 1,
        "lr": 1e-4,
    }
    write_params(folder, settings | {"methods": {NAME: entry}, "compare_encoders": ["base", NAME]})
    environment["MLFLOW_TRACKING_URI"] = server.address
    return WarmStage(folder, "components.training.train", "--method", NAME, environment=environment)


def _wait(stage: WarmStage, until: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not until():
        assert stage.runs, stage.err.read_text()
        assert time.monotonic() < end, stage.err.read_text()
        time.sleep(0.02)


def _is_tracked(server: Server) -> bool:
    """Whether metrics of a run have reached the server."""
    client = MlflowClient(server.address)
    experiment = client.get_experiment_by_name("synthetic")
    runs = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time DESC"]) if experiment else []
    return bool(runs) and runs[0].info.status == "RUNNING" and "loss/total" in runs[0].data.metrics


def _steps(folder: Path) -> int:
    """The step of the newest checkpoint, 0 before there is one."""
    found = [re.search(r"step-(\d+)$", path.name) for path in folder.glob("state/train/*/step-*")]
    return max((int(match[1]) for match in found if match), default=0)


def _assert_complete(client: MlflowClient, run_id: str, epochs: int) -> None:
    """The run ended well, every step is in the history of its metrics once, and the encoder is an artifact."""
    run, last = client.get_run(run_id), epochs * PER_EPOCH
    assert run.info.status == "FINISHED"
    for name in ("loss/total", "train/lr"):
        assert [metric.step for metric in client.get_metric_history(run_id, name)] == list(range(1, last + 1))
    validations = [metric.step for metric in client.get_metric_history(run_id, "validation/loss")]
    assert validations == [*range(VALIDATE_EVERY, last, VALIDATE_EVERY), last]
    written = {file.path for file in client.list_artifacts(run_id, NAME)}
    assert {f"{NAME}/encoder.json", f"{NAME}/encoder.safetensors", f"{NAME}/{RUN_FILE}"} <= written


def _run_id(folder: Path) -> str:
    """The run that the encoder in `folder` names; the encoder itself must be sound."""
    encoder = folder / "models" / NAME
    assert Encoder.load(encoder).sidecar.name == NAME
    return str(json.loads((encoder / RUN_FILE).read_text())["run_id"])


def test_the_training_goes_on_and_the_server_gets_it_all(server: Server, tmp_path: Path) -> None:
    with server.running():
        stage = _start(tmp_path, EPOCHS, server)
        _wait(stage, lambda: _is_tracked(server))
    gone, before = time.monotonic(), _steps(tmp_path)
    _wait(stage, lambda: _steps(tmp_path) >= before + MISSED and time.monotonic() >= gone + AWAY_S)
    with server.running():
        ended = stage.wait()
        assert ended.code == 0, ended.errors
        _assert_complete(MlflowClient(server.address), _run_id(tmp_path), EPOCHS)
    assert ended.errors.count("the metrics of run") == 1
    assert not list(tmp_path.glob("state/unsent/*"))


def test_a_server_that_stays_away_fails_no_training_and_gets_its_end_later(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = 15
    with server.running():
        stage = _start(tmp_path, epochs, server, **{WAIT: "2"})
        _wait(stage, lambda: _is_tracked(server))
    ended = stage.wait()
    assert ended.code == 0, ended.errors
    run_id = _run_id(tmp_path)
    assert ended.errors.count(f"the end of run {run_id} waits in state/unsent/{run_id}.json") == 1
    assert ended.errors.count("state/unsent") == 1

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.address)
    back = time.time()
    with server.running():
        client = MlflowClient(server.address)
        assert client.get_run(run_id).info.status == "RUNNING"
        assert [run_id in found.subject for found in sweep_runs(24, True)] == [True]
        with tracked_run("train", "next", load_settings(), {}, {}):
            _assert_complete(client, run_id, epochs)
        assert client.get_run(run_id).info.end_time <= back * 1000
    assert not list(tmp_path.glob("state/unsent/*"))
