"""MLflow runs of dead processes end as KILLED; silent ones of other hosts are told, and living ones left alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from components.core.worker_identity import new_worker
from components.sweeping.tracked_runs import OWNER, SWEPT, sweep_runs
from components.tracking import make_client


def test_runs_of_dead_processes_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert sweep_runs(1, False) == []
    assert not Path("mlruns").exists()
    client = make_client()
    experiment = client.create_experiment("world")
    alive = new_worker()
    dead = " ".join([alive.split(" ")[0], str(2**22 + 7), *alive.split(" ")[2:]])
    long_ago = round((time.time() - 7200) * 1000)

    def start(owner: str, at: int | None = None, metric: int | None = None) -> str:
        tags = {"stage": "train"} | ({OWNER: owner} if owner else {})
        run_id = str(client.create_run(experiment, start_time=at, tags=tags, run_name="x").info.run_id)
        if metric is not None:
            client.log_metric(run_id, "loss", 1.0, timestamp=metric)
        return run_id

    killed, silent = start(dead), start("elsewhere 1 2.0 ab", long_ago, long_ago)
    kept = [start(alive, long_ago), start(""), start("elsewhere 1 2.0 ab", long_ago, round(time.time() * 1000))]
    dry = sweep_runs(1, True)
    assert [client.get_run(run).info.status for run in (killed, silent)] == ["RUNNING", "RUNNING"]
    assert sweep_runs(1, False) == dry
    assert {(one.subject, one.done.partition(":")[0]) for one in dry} == {
        (f"train x ({killed})", "ended as KILLED"),
        (f"train x ({silent})", "tagged"),
    }
    assert client.get_run(killed).info.status == "KILLED"
    assert client.get_run(killed).data.tags[SWEPT] == f"its process is dead: {dead}"
    assert client.get_run(silent).info.status == "RUNNING"
    assert "silent for 2.0 hours" in client.get_run(silent).data.tags[SWEPT]
    assert {client.get_run(run).info.status for run in kept} == {"RUNNING"}
