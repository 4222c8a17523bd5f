"""Real DVC and the locks of killed processes: dead ones are passed over, and nobody waits for ever without a word."""

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

# Above what the kernel gives out.
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
def test_a_dead_process_keeps_no_stage(checkout: Path) -> None:
    _locked_by(checkout, NOBODY)
    stages.when_free(_repro, "stage prepare")
    assert ran(checkout) == ["prepare"]


@pytest.mark.integration
def test_a_number_that_is_another_process_by_now_is_told_with_the_fix(checkout: Path) -> None:
    _locked_by(checkout, os.getpid())
    with pytest.raises(CommandError, match=rf"^error: .*process {os.getpid()}, .*: remove \.dvc/tmp/rwlock .*again$"):
        stages.when_free(_repro, "stage prepare")
    (checkout / ".dvc" / "tmp" / "rwlock").unlink()
    stages.when_free(_repro, "stage prepare")
    assert ran(checkout) == ["prepare"]


@pytest.mark.integration
def test_a_list_that_is_half_written_is_told_with_the_fix(checkout: Path) -> None:
    (checkout / ".dvc" / "tmp" / "rwlock").write_text('{"read": {}, "wri')
    with pytest.raises(CommandError, match=r"^error: .*half written.*: remove \.dvc/tmp/rwlock .*again$"):
        stages.when_free(_repro, "stage prepare")


def test_a_process_that_is_dvc_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_another_fault_is_passed_on() -> None:
    def work() -> None:
        raise CommandError("stage a failed")

    with pytest.raises(CommandError, match=r"^stage a failed$"):
        stages.when_free(work, "stage a")
