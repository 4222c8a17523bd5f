"""Two people type `dvc repro` in one checkout: one of them works, the other is told who does, nothing is done twice."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from components.core.system.stage_graph import is_locked
from tests.support.dvc_project import make_project, ran

pytestmark = pytest.mark.integration
STAGES = {
    "prepare": [],
    "train@a": ["prepare"],
    "train@b": ["prepare"],
    "compare": ["train@a", "train@b"],
}
WAITS = """
import time
from pathlib import Path

while Path("wait").exists():
    time.sleep(0.02)
"""
PATIENCE_S = 60.0


def _repro(folder: Path) -> subprocess.Popen[str]:
    """`dvc repro`, as people and `make demo` start it."""
    command = [sys.executable, "-m", "dvc", "repro"]
    return subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def _ended(one: subprocess.Popen[str]) -> str:
    """What it printed, once it has ended."""
    try:
        return one.communicate(timeout=PATIENCE_S)[0]
    finally:
        one.kill()


def _assert_all_done_once(folder: Path) -> None:
    """Every stage ran once and dvc.lock knows the output of each."""
    assert Counter(ran(folder)) == dict.fromkeys(STAGES, 1)
    locked = yaml.safe_load((folder / "dvc.lock").read_text())["stages"]
    for name in STAGES:
        (out,) = locked[name]["outs"]
        assert out["md5"] == hashlib.md5((folder / out["path"]).read_bytes()).hexdigest()


def test_who_comes_second_is_told_whose_turn_it_is(tmp_path: Path) -> None:
    make_project(tmp_path, STAGES)
    work = tmp_path / "work.py"
    work.write_text(work.read_text() + WAITS)
    (tmp_path / "wait").touch()
    first = _repro(tmp_path)
    try:
        end = time.monotonic() + PATIENCE_S
        while not ran(tmp_path):
            assert first.poll() is None, _ended(first)
            assert time.monotonic() < end, "the first stage does not start"
            time.sleep(0.02)
        second = _repro(tmp_path)
        said = _ended(second)
        assert second.returncode != 0
        assert is_locked(said)
        assert f"(PID {first.pid})" in said
        assert "Traceback" not in said
        assert ran(tmp_path) == ["prepare"]
    finally:
        (tmp_path / "wait").unlink()
    told = _ended(first)
    assert first.returncode == 0, told
    _assert_all_done_once(tmp_path)
