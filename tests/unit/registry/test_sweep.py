"""MLflow runs of dead processes end as KILLED, and moved aliases are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from components.core.system.processes import new_worker
from components.core.tracking import make_client
from components.registry.champion import rollback
from components.registry.model import CHAMPION
from components.registry.promotion import promote
from components.registry.sweep import OWNER, SWEPT, sweep_aliases, sweep_runs

MODEL = "text-encoder"


def test_runs_of_dead_processes_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert (sweep_runs(False), sweep_aliases(MODEL)) == ([], [])
    assert not Path("mlruns").exists()
    client = make_client()
    experiment = client.create_experiment("world")
    alive = new_worker()
    dead = " ".join([alive.split(" ")[0], str(2**22 + 7), *alive.split(" ")[2:]])

    def start(owner: str) -> str:
        tags = {"stage": "train"} | ({OWNER: owner} if owner else {})
        return str(client.create_run(experiment, tags=tags, run_name="x").info.run_id)

    def statuses(*runs: str) -> list[str]:
        return [client.get_run(run).info.status for run in runs]

    killed, *kept = start(dead), start(alive), start(""), start("elsewhere 1 2.0 ab")
    dry = sweep_runs(True)
    assert statuses(killed) == ["RUNNING"]
    assert sweep_runs(False) == dry
    assert [(finding.subject, finding.done) for finding in dry] == [(f"x ({killed})", "ended as KILLED")]
    assert statuses(killed, *kept) == ["KILLED", *["RUNNING"] * 3]
    assert client.get_run(killed).data.tags[SWEPT] == f"its process is dead: {dead}"


def test_an_alias_that_was_moved_by_hand_is_reported(project: Any) -> None:
    assert sweep_aliases(MODEL) == []
    project.add("paraclip", 2, 0.5)
    promote(project.settings)
    project.add("paraclip", 3, 0.6)
    assert promote(project.settings).version == "2"
    assert sweep_aliases(MODEL) == []
    rollback(project.settings)
    assert sweep_aliases(MODEL) == []
    client = make_client()
    client.set_registered_model_alias(MODEL, CHAMPION, "2")
    (finding,) = sweep_aliases(MODEL)
    assert finding.subject == "text-encoder@champion is version 2"
    assert "version 1" in finding.reason
    client.delete_registered_model_alias(MODEL, CHAMPION)
    assert [finding.subject for finding in sweep_aliases(MODEL)] == ["text-encoder@champion is no version"]
