"""Transfers whose server or own process is killed: retried or repeated, correct, and never half visible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from components.core.pictures.storage import S3
from tests.support.restartable_s3 import RestartableS3, restartable_s3

pytestmark = pytest.mark.integration
PART = 8 << 20
URL = "s3://ready/shards/000.tar"

# A process that is killed after this many bytes.
_KILLED = """
import os, signal, sys
from pathlib import Path
from components.core.pictures.storage import S3
sent = 0
def on_bytes(size):
    global sent
    sent += size
    if sent >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
S3().put(Path(sys.argv[1]), sys.argv[2], on_bytes)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RestartableS3]:
    with restartable_s3() as running:
        yield running


@pytest.fixture
def shard(server: RestartableS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of ten parts; `URL` does not exist."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    server.client().delete_object(Bucket="ready", Key="shards/000.tar")
    path = tmp_path / "shard.tar"
    path.write_bytes(os.urandom(10 * PART - 1000))
    return path


def _visible(server: RestartableS3) -> bool:
    try:
        server.client().head_object(Bucket="ready", Key="shards/000.tar")
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return False
        raise
    return True


def _uploads(server: RestartableS3) -> int:
    return len(server.client().list_multipart_uploads(Bucket="ready").get("Uploads", []))


def _run_killed(path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(path), URL, str(4 * PART)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL


def test_server_killed_during_upload(server: RestartableS3, shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "20")

    sent = [0]

    def count(size: int) -> None:
        before, sent[0] = sent[0], sent[0] + size
        if before < 4 * PART <= sent[0]:
            assert not _visible(server)
            server.kill()
            threading.Timer(3, server.start).start()

    assert S3().put(shard, URL, count) == sent[0] == shard.stat().st_size
    assert S3().read(URL) == shard.read_bytes()
    assert _uploads(server) == 0


def test_uploader_killed_and_run_again(server: RestartableS3, shard: Path) -> None:
    _run_killed(shard)
    assert not _visible(server)
    assert _uploads(server) == 1
    assert S3().put(shard, URL) == shard.stat().st_size
    assert S3().read(URL) == shard.read_bytes()
