"""A worker and its flow run killed in a stage: no process remains, the next run resumes, the killed one is Crashed."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import psutil
import pytest

from flows.sweep import create_automation
from tests.support.dvc_project import ran
from tests.support.held_stages import command_line, wait_until_gone
from tests.support.prefect_stack import STAGES, WAITING, has_ended, let_go, make_waiting_project, prefect_stack

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


def test_no_process_remains_and_the_next_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_waiting_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    # The shortest interval that Prefect takes.
    monkeypatch.setenv("PREFECT_FLOWS_HEARTBEAT_FREQUENCY", "30")
    with prefect_stack(tmp_path) as stack:
        create_automation(silent_s=60)
        deployment = stack.deploy("train-paraclip")
        worker = stack.start_worker()
        killed = stack.run(deployment)
        stack.wait_for("the stage", lambda: WAITING in ran(tmp_path))
        # It runs at the same time as the waiting stage; killed before DVC has recorded it, it would rightly run twice.
        stack.wait_for("the others' record", lambda: "evaluate@base" in (tmp_path / "dvc.lock").read_text())
        family = psutil.Process(worker.pid).children(recursive=True)
        supervisors = [
            process for process in family if any(part.endswith("/supervisor.py") for part in command_line(process))
        ]
        assert any("work.py" in command_line(process) for process in family)

        flow_runs = {os.getpgid(supervisor.ppid()) for supervisor in supervisors}
        assert flow_runs.isdisjoint(os.getpgid(supervisor.pid) for supervisor in supervisors)
        for group in {os.getpgid(worker.pid), *flow_runs}:
            os.killpg(group, signal.SIGKILL)
        stack.running.pop("worker").wait()
        wait_until_gone(family)
        assert not has_ended(tmp_path, WAITING)

        let_go(tmp_path)
        stack.start_worker()
        second = stack.run(deployment)
        stack.wait_for("the second flow's end", lambda: stack.has_ended(second))
        assert stack.is_completed(second), stack.log("worker")[-6000:]
        assert Counter(ran(tmp_path)) == {**dict.fromkeys(STAGES, 1), WAITING: 2}

        def is_crashed() -> bool:
            state = stack.flow_run(killed).state
            return state is not None and state.is_crashed()

        stack.wait_for("the crash of the killed flow run", is_crashed)
