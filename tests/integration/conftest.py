"""Real servers for tests, started on free ports of 127.0.0.1 and stopped afterwards."""

from __future__ import annotations

import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

_UP_WITHIN = 90.0
_PARTS = ("master", "volume", "filer", "s3")


@dataclass(frozen=True)
class S3Server:
    """A running S3 server with one user who may do everything; `litter` is what it puts outside its folder."""

    endpoint: str
    access_key: str
    secret_key: str
    process: subprocess.Popen[bytes]
    litter: list[Path]

    @property
    def environment(self) -> dict[str, str]:
        """What boto3 and everything built on it reads."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def client(self) -> Any:
        """A boto3 client that gives up soon."""
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(connect_timeout=5, read_timeout=30, retries={"max_attempts": 1}),
        )


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """SeaweedFS with its S3 gateway; its data goes when the tests end."""
    # Its sockets need a path shorter than pytest's folders.
    with tempfile.TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True) as name:
        server = _start(Path(name))
        try:
            _wait(server, Path(name) / "log")
            yield server
        finally:
            # Nothing in it is worth the half minute that an orderly stop takes.
            server.process.kill()
            server.process.wait()
            for path in server.litter:
                path.unlink(missing_ok=True)


@pytest.fixture
def s3(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """The S3 server, with the environment of this test set to it."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    return s3_server


@pytest.fixture
def bucket(s3: S3Server) -> str:
    """A new bucket."""
    name = f"test-{secrets.token_hex(6)}"
    s3.client().create_bucket(Bucket=name)
    return name


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on; all different."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in taken]


def _start(folder: Path) -> S3Server:
    access, secret = secrets.token_hex(8), secrets.token_hex(16)
    user = {"name": "test", "credentials": [{"accessKey": access, "secretKey": secret}], "actions": ["Admin"]}
    (folder / "s3.json").write_text(json.dumps({"identities": [user]}))
    names = [f"{part}.port{kind}" for part in _PARTS for kind in ("", ".grpc")]
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    command = [
        str(Path(sys.executable).with_name("weed")),
        "server",
        f"-dir={folder}",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64",
        # Every bucket takes seven at its first object.
        "-volume.max=1000",
        "-s3",
        f"-s3.config={folder / 's3.json'}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.localSocket={folder / 's3.sock'}",
        f"-filer.localSocket={folder / 'filer.sock'}",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    litter = [Path(f"/tmp/seaweedfs-{part}-grpc-{ports[f'{part}.port.grpc']}.sock") for part in _PARTS]
    return S3Server(f"http://127.0.0.1:{ports['s3.port']}", access, secret, process, litter)


def _wait(server: S3Server, log: Path) -> None:
    """Return when an object can be written."""
    client, end = server.client(), time.monotonic() + _UP_WITHIN
    while True:
        try:
            client.create_bucket(Bucket="ready")
            client.put_object(Bucket="ready", Key="ready", Body=b"ready")
            return
        except (BotoCoreError, ClientError) as error:
            if server.process.poll() is not None or time.monotonic() > end:
                pytest.fail(f"the S3 server did not start ({error}): {log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
