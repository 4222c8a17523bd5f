"""Real DVC and the locks of killed processes: no stage waits for ever."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.system.processes import CommandError
from flows import stages
from tests.support.dvc_project import make_project, ran

# Larger than any process number.
NOBODY = 2**22 + 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "PAUSE", 0.0)
    monkeypatch.setattr(stages, "get_run_logger", lambda: logging.getLogger("flow"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_project(tmp_path, {"prepare": []}, seconds=0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".dvc" / "tmp").mkdir(exist_ok=True)
    return tmp_path


def _locked_by(folder: Path, number: int) -> None:
    lock = {"write": {str(folder / "out" / "prepare.txt"): {"pid": number, "cmd": "dvc repro prepare"}}}
    (folder / ".dvc" / "tmp" / "rwlock").write_text(json.dumps(lock))


def _repro() -> None:
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item", "prepare"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CommandError(done.stderr)


@pytest.mark.integration
def test_locks_that_block_for_ever_end_the_stage_and_those_of_dead_processes_do_not(checkout: Path) -> None:
    fix = r"remove \.dvc/tmp/rwlock .*again$"
    (checkout / ".dvc" / "tmp" / "rwlock").write_text('{"read": {}, "wri')
    with pytest.raises(CommandError, match=rf"^error: .*half written.*: {fix}"):
        stages.when_free(_repro, "stage prepare")
    # The number of the dead process now belongs to this one.
    _locked_by(checkout, os.getpid())
    with pytest.raises(CommandError, match=rf"^error: .*process {os.getpid()}, .*: {fix}"):
        stages.when_free(_repro, "stage prepare")
    _locked_by(checkout, NOBODY)
    stages.when_free(_repro, "stage prepare")
    assert ran(checkout) == ["prepare"]


def test_a_stage_waits_for_another_dvc_but_not_after_another_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[int] = []
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", "dvc"], stdin=subprocess.PIPE
    ) as other:

        def work() -> None:
            tries.append(1)
            if len(tries) < 4:
                raise CommandError(f"'a' is busy, it is being blocked by:\n  (PID {other.pid}): dvc repro a")

        stages.when_free(work, "stage a")
    assert len(tries) == 4

    def fail() -> None:
        raise CommandError("stage a failed")

    with pytest.raises(CommandError, match=r"^stage a failed$"):
        stages.when_free(fail, "stage a")
