"""The sweep ends flow runs whose process died, goes on where one place cannot be looked at, and tells all of it."""

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

import flows.sweep
from components.core.errors import InputError
from components.core.worker_identity import new_worker
from components.sweeping.finding import Finding
from flows.heartbeat import HEARTBEAT, OWNER
from flows.sweep import sweep, sweep_flow_runs

REPO = Path(__file__).parents[2]
DYING = """
import os, time
from prefect import flow
from prefect.runtime import flow_run
from flows.heartbeat import heartbeat

@flow(name="dying")
def dying():
    with heartbeat():
        open("run.txt", "w").write(str(flow_run.id))
        time.sleep(600)

dying()
"""


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_the_run_of_a_killed_process_is_ended_and_a_living_one_is_not(tmp_path: Path) -> None:
    from uuid import UUID

    from prefect import flow, get_client
    from prefect.settings import PREFECT_API_URL

    environment = {**os.environ, "PYTHONPATH": str(REPO), "PREFECT_API_URL": str(PREFECT_API_URL.value())}
    process = subprocess.Popen([sys.executable, "-c", DYING], cwd=tmp_path, env=environment)
    file = tmp_path / "run.txt"
    deadline = time.monotonic() + 240
    while not (file.exists() and file.read_text()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    run = UUID(file.read_text())
    assert [one for one in sweep_flow_runs(60, False) if str(run) in one.subject] == []
    process.send_signal(signal.SIGKILL)
    process.wait()

    def found(dry_run: bool) -> list[Finding]:
        return [one for one in sweep_flow_runs(60, dry_run) if str(run) in one.subject]

    with get_client(sync_client=True) as client:
        assert "its process is dead" in found(True)[0].reason
        assert client.read_flow_run(run).state.is_running()  # type: ignore[union-attr]
        assert found(False)[0].done == "ended as Crashed"
        state = client.read_flow_run(run).state
        assert state is not None
        assert state.is_crashed()
        assert found(False) == []

        # On another host, only a heartbeat tells.
        @flow
        def elsewhere() -> None:
            from prefect.runtime import flow_run

            here = UUID(str(flow_run.id))
            owner = "elsewhere" + new_worker()
            client.update_flow_run_labels(here, {OWNER: owner, HEARTBEAT: time.time()})
            assert not [one for one in sweep_flow_runs(60, True) if str(here) in one.subject]
            client.update_flow_run_labels(here, {OWNER: owner, HEARTBEAT: time.time() - 120})
            (one,) = [one for one in sweep_flow_runs(60, True) if str(here) in one.subject]
            assert "no heartbeat for 2 minutes" in one.reason

        elsewhere()


@pytest.mark.integration
@pytest.mark.usefixtures("prefect_server")
def test_a_place_that_cannot_be_looked_at_keeps_no_other_from_it(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.artifacts import Artifact

    def fail(*_: object) -> list[Finding]:
        raise InputError("the database is away")

    finding = Finding("registry", "an alias", "moved by hand", "reported")
    monkeypatch.setattr(flows.sweep, "sweep_runs", fail)
    monkeypatch.setattr(flows.sweep, "sweep_aliases", lambda _model: [finding])
    with pytest.raises(InputError, match="the database is away"):
        sweep(dry_run=True)
    table = Artifact.get("sweep")
    assert table is not None
    assert "What would be done" in str(table.description)
    assert [row["subject"] for row in json.loads(str(table.data)) if row["place"] == "registry"] == ["an alias"]
