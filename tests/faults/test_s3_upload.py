"""Uploads whose server or own process is killed: retried or repeated, correct, and never half visible."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from components.core.pictures.storage import S3
from tests.support.restartable_s3 import RestartableS3, restartable_s3
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration
URL = "s3://ready/encoder"
UPLOAD = """
import sys
from pathlib import Path
from components.core.pictures.storage import S3
S3().upload(Path(sys.argv[1]), sys.argv[2])
"""


@pytest.fixture(scope="module")
def server() -> Iterator[RestartableS3]:
    with restartable_s3() as running:
        yield running


@pytest.fixture
def folder(server: RestartableS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of many parts; `URL` has no objects."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.client().delete_object(Bucket="ready", Key="encoder/model.bin")
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "model.bin").write_bytes(os.urandom(200 << 20))
    return tmp_path / "encoder"


def _visible(server: RestartableS3) -> bool:
    try:
        server.client().head_object(Bucket="ready", Key="encoder/model.bin")
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
            return False
        raise
    return True


def _uploads(server: RestartableS3) -> int:
    return len(server.client().list_multipart_uploads(Bucket="ready").get("Uploads", []))


def _started(server: RestartableS3, folder: Path) -> subprocess.Popen[bytes]:
    """An uploading process whose first parts are under way."""
    before = _uploads(server)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "AWS_MAX_ATTEMPTS": "20"}
    process = subprocess.Popen([sys.executable, "-c", UPLOAD, str(folder), URL], env=environment)
    wait_until(lambda: _uploads(server) > before, 60, lambda: "no upload began")
    return process


def test_server_killed_during_upload(server: RestartableS3, folder: Path) -> None:
    process = _started(server, folder)
    server.kill()
    assert process.poll() is None
    time.sleep(3)
    server.start()
    assert process.wait(120) == 0
    assert S3().read(f"{URL}/model.bin") == (folder / "model.bin").read_bytes()
    assert _uploads(server) == 0


def test_uploader_killed_and_run_again(server: RestartableS3, folder: Path) -> None:
    process = _started(server, folder)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not _visible(server)
    assert _uploads(server) == 1
    S3().upload(folder, URL)
    assert S3().read(f"{URL}/model.bin") == (folder / "model.bin").read_bytes()
