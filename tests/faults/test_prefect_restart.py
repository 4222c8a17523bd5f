"""The Prefect server killed and restarted while a worker runs a flow: its stages continue, each once, and it ends."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest
from prefect.artifacts import Artifact

from tests.support.dvc_project import ran
from tests.support.prefect_stack import STAGES, WAITING, has_ended, let_go, make_waiting_project, prefect_stack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]
AWAY_S = float(os.environ.get("CLIPTUNE_TEST_AWAY_S", "0"))
"""Seconds without the server after the stage has ended, in addition to the time of its start."""


def test_stages_continue_and_the_flow_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_waiting_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    with prefect_stack(tmp_path) as stack:
        deployment = stack.deploy("train-paraclip")
        stack.start_worker()
        run = stack.run(deployment)
        stack.wait_for("the stage", lambda: WAITING in ran(tmp_path))

        stack.kill_server()
        let_go(tmp_path)
        stack.wait_for("the stage's end", lambda: has_ended(tmp_path, WAITING))
        time.sleep(AWAY_S)
        stack.start_server()
        stack.wait_for("the flow's end", lambda: stack.has_ended(run))

        found = stack.flow_run(run)
        assert found.state is not None
        assert found.state.is_completed(), f"{found.state}\n{stack.log('worker')[-6000:]}"
        assert found.run_count == 1
        assert Counter(ran(tmp_path)) == dict.fromkeys(STAGES, 1)
        shown = Artifact.get("stages")
        assert shown is not None
        assert all(name in str(shown.data) for name in STAGES)

        # The worker takes the next run as usual.
        second = stack.run(deployment)
        stack.wait_for("the second flow's end", lambda: stack.has_ended(second))
        assert stack.is_completed(second)
        assert Counter(ran(tmp_path)) == dict.fromkeys(STAGES, 1)
