"""A DVC remote in S3: a clone pulls the same bytes that another clone pushed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.cli.doctor.check import Installation
from components.cli.doctor.servers import check_dvc_remote
from components.core.system.errors import InputError

pytestmark = pytest.mark.integration


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _dvc(folder: Path, *arguments: str) -> str:
    return _run(folder, sys.executable, "-m", "dvc", *arguments)


def test_a_clone_pulls_what_another_clone_pushed(s3: Any, bucket: str, tmp_path: Path) -> None:
    origin, one, other = tmp_path / "origin.git", tmp_path / "one", tmp_path / "other"
    _run(tmp_path, "git", "init", "-q", "--bare", str(origin))
    _run(tmp_path, "git", "clone", "-q", str(origin), str(one))
    _dvc(one, "init", "-q")
    _dvc(one, "remote", "add", "--default", "store", f"s3://{bucket}/dvc")
    _dvc(one, "remote", "modify", "store", "endpointurl", s3.endpoint)
    contents = {"weights.bin": os.urandom(3_200_000), "shards/000.tar": os.urandom(5000), "shards/001.tar": b""}
    (one / "shards").mkdir()
    for name, content in contents.items():
        (one / name).write_bytes(content)
    _dvc(one, "add", "-q", "weights.bin", "shards")
    _dvc(one, "push", "-q")
    _run(one, "git", "add", ".")
    _run(one, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "data")
    _run(one, "git", "push", "-q", "origin", "HEAD")

    _run(tmp_path, "git", "clone", "-q", str(origin), str(other))
    assert not (other / "weights.bin").exists()
    _dvc(other, "pull", "-q")
    assert {name: (other / name).read_bytes() for name in contents} == contents
    assert "in sync" in _dvc(other, "status", "--cloud")
    assert check_dvc_remote(Installation({}, other, None)).status == "ok"
    secrets = [path for path in other.rglob("*") if path.is_file() and s3.secret_key.encode() in path.read_bytes()]
    assert secrets == []


def test_doctor_reports_a_missing_and_an_unreachable_remote(s3: Any, bucket: str, tmp_path: Path) -> None:
    _run(tmp_path, "git", "init", "-q", ".")
    _dvc(tmp_path, "init", "-q")
    _dvc(tmp_path, "remote", "add", "--default", "store", f"s3://{bucket}-not-there/dvc")
    with pytest.raises(InputError, match="not-there is missing"):
        check_dvc_remote(Installation({}, tmp_path, None))
    _dvc(tmp_path, "remote", "modify", "store", "endpointurl", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="is out of reach"):
        check_dvc_remote(Installation({}, tmp_path, None))
