"""A DVC remote in S3: what one clone pushes, another pulls, byte for byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.core.system.errors import InputError
from components.doctor.check import Installation
from components.doctor.servers import check_dvc_remote

pytestmark = pytest.mark.integration

# Bytes that depend on nothing but the parameter, in a file and in a folder.
_STAGE = """
import hashlib, pathlib, yaml
seed = yaml.safe_load(open("params.yaml"))["seed"]
block = b"".join(hashlib.sha256(f"{seed}-{number}".encode()).digest() for number in range(100_000))
pathlib.Path("weights.bin").write_bytes(block)
pathlib.Path("shards").mkdir(exist_ok=True)
for number in range(20):
    pathlib.Path(f"shards/{number:03d}.tar").write_bytes(block[number * 1000:][:5000])
"""
_PIPELINE = """
stages:
  make:
    cmd: python make.py
    deps: [make.py]
    params: [seed]
    outs: [weights.bin, shards]
"""


def _run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def _dvc(folder: Path, *arguments: str) -> str:
    return _run(folder, sys.executable, "-m", "dvc", *arguments)


def _contents(folder: Path) -> dict[str, bytes]:
    files = [folder / "weights.bin", *(folder / "shards").iterdir()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_what_one_clone_pushes_another_pulls(s3: Any, bucket: str, tmp_path: Path) -> None:
    origin, one, other = tmp_path / "origin.git", tmp_path / "one", tmp_path / "other"
    _run(tmp_path, "git", "init", "-q", "--bare", str(origin))
    _run(tmp_path, "git", "clone", "-q", str(origin), str(one))
    _dvc(one, "init", "-q")
    _dvc(one, "remote", "add", "--default", "store", f"s3://{bucket}/dvc")
    _dvc(one, "remote", "modify", "store", "endpointurl", s3.endpoint)
    (one / "make.py").write_text(_STAGE)
    (one / "dvc.yaml").write_text(_PIPELINE.replace("python", sys.executable))
    (one / "params.yaml").write_text("seed: 7\n")
    _dvc(one, "repro", "-q")
    _dvc(one, "push", "-q")
    _run(one, "git", "add", ".")
    _run(one, "git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "pipeline")
    _run(one, "git", "push", "-q", "origin", "HEAD")

    _run(tmp_path, "git", "clone", "-q", str(origin), str(other))
    assert not (other / "weights.bin").exists()
    _dvc(other, "pull", "-q")
    assert _contents(other) == _contents(one)
    assert "up to date" in _dvc(other, "status")
    assert "in sync" in _dvc(other, "status", "--cloud")
    assert check_dvc_remote(Installation({}, other, None)).status == "ok"
    secrets = [path for path in other.rglob("*") if path.is_file() and s3.secret_key.encode() in path.read_bytes()]
    assert secrets == []


def test_doctor_says_that_the_remote_is_away(s3: Any, bucket: str, tmp_path: Path) -> None:
    _run(tmp_path, "git", "init", "-q", ".")
    _dvc(tmp_path, "init", "-q")
    _dvc(tmp_path, "remote", "add", "--default", "store", f"s3://{bucket}-not-there/dvc")
    with pytest.raises(InputError, match="not-there is missing"):
        check_dvc_remote(Installation({}, tmp_path, None))
    _dvc(tmp_path, "remote", "modify", "store", "endpointurl", "http://127.0.0.1:9")
    with pytest.raises(InputError, match="is out of reach"):
        check_dvc_remote(Installation({}, tmp_path, None))
