"""Transfers whose server or whose own process is killed: retried or run again, right, and never half visible."""

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
from components.core.system.errors import InputError
from tests.support.restartable_s3 import RestartableS3, restartable_s3

pytestmark = pytest.mark.integration
PART = 8 << 20
URL = "s3://ready/shards/000.tar"

# A process that is killed when this many bytes have travelled.
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
getattr(S3(), sys.argv[4])(*(part if "://" in part else Path(part) for part in sys.argv[1:3]), on_bytes)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RestartableS3]:
    with restartable_s3() as running:
        yield running


@pytest.fixture
def shard(server: RestartableS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of ten parts; nothing lies at `URL`."""
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


class _OnceSent:
    """Calls `act` once, when this many bytes are in the store."""

    def __init__(self, most: int, act: object) -> None:
        self.sent, self.most, self.act, self.done = 0, most, act, False

    def __call__(self, size: int) -> None:
        self.sent += size
        if self.sent >= self.most and not self.done:
            self.done = True
            self.act()  # type: ignore[operator]


def _run_killed(verb: str, *places: str) -> None:
    command = [sys.executable, "-c", _KILLED, *places, str(4 * PART), verb]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL


def test_server_killed_during_upload(server: RestartableS3, shard: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "20")

    def fall() -> None:
        assert not _visible(server)
        server.kill()
        threading.Timer(3, server.start).start()

    fallen = _OnceSent(4 * PART, fall)
    size = S3().put(shard, URL, fallen)
    assert fallen.done
    assert fallen.sent == size == shard.stat().st_size
    assert S3().read(URL) == shard.read_bytes()
    assert _uploads(server) == 0


def test_uploader_killed_and_run_again(server: RestartableS3, shard: Path) -> None:
    _run_killed("put", str(shard), URL)
    assert not _visible(server)
    assert _uploads(server) == 1
    assert S3().put(shard, URL) == shard.stat().st_size
    assert S3().read(URL) == shard.read_bytes()


def test_downloader_killed_and_run_again(server: RestartableS3, shard: Path, tmp_path: Path) -> None:
    back = tmp_path / "back.tar"
    S3().put(shard, URL)
    _run_killed("get", URL, str(back))
    assert not back.exists()
    S3().get(URL, back)
    assert back.read_bytes() == shard.read_bytes()
    assert [path.name for path in tmp_path.glob("*back*")] + [path.name for path in tmp_path.glob(".back*")] == [
        "back.tar"
    ]


def test_server_that_stays_away_ends_the_upload_and_a_later_one_completes(
    server: RestartableS3, shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    try:
        fallen = _OnceSent(4 * PART, server.kill)
        with pytest.raises(InputError, match=r"000\.tar is out of reach .* check AWS_ENDPOINT_URL_S3"):
            S3().put(shard, URL, fallen)
    finally:
        server.start()
        server.wait()
    assert not _visible(server)
    assert S3().put(shard, URL) == shard.stat().st_size
    assert S3().read(URL) == shard.read_bytes()
