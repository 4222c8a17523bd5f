"""Uploads whose server or whose own process is killed: retried, taken up again, right, and never half visible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from components.core.errors import InputError
from components.core.files import file_hash
from components.core.storage import S3
from tests.support.restartable_s3 import RestartableS3, restartable_s3

pytestmark = pytest.mark.integration
PART = 5 << 20
URL = "s3://ready/shards/000.tar"

# An uploader that is killed when this many bytes are in the store.
_KILLED = """
import os, signal, sys
from pathlib import Path
from components.core.storage import S3
sent = 0
def on_bytes(size):
    global sent
    sent += size
    if sent >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
S3().put(Path(sys.argv[1]), sys.argv[2], on_bytes, part_size=5 << 20, state=Path("uploads"))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RestartableS3]:
    with restartable_s3() as running:
        yield running


@pytest.fixture
def shard(server: RestartableS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of eight parts; nothing lies at `URL`."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    server.client().delete_object(Bucket="ready", Key="shards/000.tar")
    path = tmp_path / "shard.tar"
    path.write_bytes(os.urandom(8 * PART - 1000))
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


def test_server_killed_during_upload(server: RestartableS3, shard: Path, tmp_path: Path) -> None:
    def fall() -> None:
        assert not _visible(server)
        server.kill()
        threading.Timer(3, server.start).start()

    fallen = _OnceSent(3 * PART, fall)
    stored = S3().put(shard, URL, fallen, part_size=PART, patience=240, state=tmp_path / "uploads")
    assert fallen.done
    assert fallen.sent == stored.size == shard.stat().st_size
    assert S3().get(URL, tmp_path / "back.tar") == stored.sha256 == file_hash(shard)
    assert (tmp_path / "back.tar").read_bytes() == shard.read_bytes()
    assert list((tmp_path / "uploads").glob("*.json")) == []
    assert _uploads(server) == 0


def test_uploader_killed_and_run_again(server: RestartableS3, shard: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(shard), URL, str(3 * PART)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert not _visible(server)
    assert _uploads(server) == 1
    stored = S3().put(shard, URL, part_size=PART, state=tmp_path / "uploads")
    assert stored.sent <= stored.size - 3 * PART
    assert S3().get(URL, tmp_path / "back.tar") == file_hash(shard)
    assert _uploads(server) == 0


def test_server_that_stays_away_ends_the_upload_and_a_later_one_goes_on(
    server: RestartableS3, shard: Path, tmp_path: Path
) -> None:
    try:
        fallen = _OnceSent(3 * PART, server.kill)
        started = time.monotonic()
        with pytest.raises(InputError, match=r"000\.tar is out of reach .* check AWS_ENDPOINT_URL_S3"):
            S3().put(shard, URL, fallen, part_size=PART, patience=1, state=tmp_path / "uploads")
        assert time.monotonic() - started < 120
    finally:
        server.start()
        server.wait()
    assert not _visible(server)
    stored = S3().put(shard, URL, part_size=PART, state=tmp_path / "uploads")
    assert stored.sent <= stored.size - 3 * PART
    assert S3().get(URL, tmp_path / "back.tar") == file_hash(shard)
