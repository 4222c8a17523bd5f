"""Locks of dead DVC processes are taken out; those of living ones, and everything in a dry run, stay."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import zc.lockfile

from components.core.errors import InputError
from components.sweeping import dvc_locks
from components.sweeping.dvc_locks import sweep_locks

DEAD = 2**22 + 7
"""Above the largest process number that Linux gives."""


@pytest.fixture
def dvc(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A living process in the checkout that looks like DVC."""
    (tmp_path / "dvc").write_text("print(flush=True); import time; time.sleep(300)")
    process = subprocess.Popen([sys.executable, "dvc"], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / ".dvc" / "tmp"
    made.mkdir(parents=True)
    return made


def _info(pid: int) -> dict[str, object]:
    return {"pid": pid, "cmd": "dvc repro"}


def test_dead_holders_and_strangers_of_the_same_number_lose_their_locks(
    folder: Path, dvc: subprocess.Popen[bytes]
) -> None:
    stranger = 1
    alive, path = _info(dvc.pid), folder / "rwlock"
    held = {"write": {"a": _info(DEAD), "b": alive}, "read": {"c": [_info(stranger), alive], "d": [_info(DEAD)]}}
    path.write_text(json.dumps(held))
    dry = sweep_locks(True, folder)
    assert json.loads(path.read_text()) == held
    assert sweep_locks(False, folder) == dry
    assert [(one.subject, one.reason) for one in dry] == [
        ("write lock on a", f"process {DEAD} is dead"),
        ("read lock on c", f"process {stranger} is no DVC by now"),
        ("read lock on d", f"process {DEAD} is dead"),
    ]
    assert json.loads(path.read_text()) == {"write": {"b": alive}, "read": {"c": [alive]}}
    assert sweep_locks(False, folder) == []


def test_half_written_file_goes_when_no_dvc_works_here(folder: Path, dvc: subprocess.Popen[bytes]) -> None:
    path = folder / "rwlock"
    path.write_text('{"write": {"a"')
    (kept,) = sweep_locks(False, folder)
    assert f"process {dvc.pid}" in kept.done
    assert path.exists()
    dvc.kill()
    dvc.wait()
    assert sweep_locks(True, folder)[0].done == "removed"
    assert path.exists()
    sweep_locks(False, folder)
    assert not path.exists()


def test_nothing_is_found_where_nobody_left_anything(folder: Path, tmp_path: Path) -> None:
    assert sweep_locks(False, tmp_path / "none") == []
    (folder / "rwlock").write_text('{"read": {}, "write": {}}')
    assert sweep_locks(False, folder) == []


def test_a_file_that_dvc_holds_all_the_time_is_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dvc_locks, "TRIES", 2)
    (folder / "rwlock").write_text("{}")
    lock = zc.lockfile.LockFile(str(folder / "rwlock.lock"))
    with closing(lock), pytest.raises(InputError, match="held by a DVC process"):
        sweep_locks(False, folder)
