"""The Prefect server killed and started again while a worker runs a flow: its stages go on, none twice, and it ends."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
import yaml
from prefect import get_client
from prefect.artifacts import Artifact

from flows.owner import HEARTBEAT
from tests.flows.conftest import Project
from tests.support.dvc_project import REPO, make_project, ran
from tests.support.prefect_stack import PrefectStack, prefect_stack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
AWAY_S = float(os.environ.get("CLIPTUNE_TEST_AWAY_S", "0"))
"""How long the server stays away after the stage has ended."""
STAGES = {
    "prepare": [],
    "evaluate@base": ["prepare"],
    "train@paraclip": ["prepare"],
    "evaluate@paraclip": ["train@paraclip"],
}
WAITS = """
import time
while name == "train@paraclip" and Path("wait").exists():
    time.sleep(0.02)
Path(f"{name}.ended").touch()
"""


def _make_project(folder: Path) -> None:
    """Stages of which one waits as long as there is a file, and scores that are there already."""
    make_project(folder, STAGES)
    work = folder / "work.py"
    work.write_text(work.read_text() + WAITS)
    (folder / "wait").touch()
    (folder / "flows").symlink_to(REPO / "flows")
    raw = yaml.safe_load((folder / "params.yaml").read_text())
    raw["methods"]["other"] = {"method": "paraclip"}
    # Nothing scores the third, so that the flow neither compares nor promotes.
    (folder / "params.yaml").write_text(yaml.safe_dump(raw | {"encoders": ["base", "paraclip", "other"]}))
    Project(folder).score("base", "paraclip")


def _wait_for_stage(stack: PrefectStack, name: str) -> None:
    stack.wait_for(f"stage {name}", lambda: name in ran(stack.folder))


def test_stages_go_on_and_the_flow_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _make_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    with prefect_stack(tmp_path) as stack:
        deployment = stack.deploy("train-paraclip")
        worker = stack.start_worker()
        with get_client(sync_client=True) as client:
            run = client.create_flow_run_from_deployment(deployment).id
        _wait_for_stage(stack, "train@paraclip")
        at_work = psutil.Process(worker.pid).children(recursive=True)
        assert any("work.py" in process.cmdline() for process in at_work)

        stack.kill_server()
        (tmp_path / "wait").unlink()
        stack.wait_for("the stage's end", (tmp_path / "train@paraclip.ended").exists)
        time.sleep(AWAY_S)
        stack.start_server()
        stack.wait_for("the flow's end", lambda: stack.has_ended(run))

        state = stack.flow_run(run).state
        assert state.is_completed(), f"{state}\n{stack.log('worker')[-6000:]}"
        assert Counter(ran(tmp_path)) == dict.fromkeys(STAGES, 1)
        assert HEARTBEAT in stack.flow_run(run).labels
        assert stack.flow_run(run).run_count == 1
        shown = Artifact.get("stages")
        assert shown is not None
        assert all(name in str(shown.data) for name in STAGES)
        # The worker takes the next run as if nothing had been.
        with get_client(sync_client=True) as client:
            again = client.create_flow_run_from_deployment(deployment).id
        stack.wait_for("the second flow's end", lambda: stack.has_ended(again))
        assert stack.flow_run(again).state.is_completed()
        assert Counter(ran(tmp_path)) == dict.fromkeys(STAGES, 1)
    assert sys.executable not in [process.exe() for process in at_work if process.is_running()]
