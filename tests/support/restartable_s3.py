"""An S3 server that a test kills and starts again, on the same ports and with the same data."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from infra.seaweed import PORT_NAMES, Seaweed

_UP_WITHIN = 180.0


@dataclass
class RestartableS3:
    """The server's keys, and its process while it runs."""

    seaweed: Seaweed
    access_key: str
    secret_key: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """URL of the S3 gateway."""
        return self.seaweed.endpoint

    @property
    def environment(self) -> dict[str, str]:
        """What boto3 reads."""
        return {
            "AWS_ENDPOINT_URL_S3": self.seaweed.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def client(self) -> Any:
        """A client that does not retry."""
        return boto3.client(
            "s3",
            endpoint_url=self.seaweed.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
            config=Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1}),
        )

    def start(self) -> None:
        """Start the server, without waiting."""
        with (self.seaweed.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.seaweed.command(),
                cwd=self.seaweed.folder,
                env=os.environ | self.seaweed.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def kill(self) -> None:
        """End the server at once."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wait(self) -> None:
        """Return when objects can be written."""
        client, end = self.client(), time.monotonic() + _UP_WITHIN
        while True:
            try:
                # After a restart the bucket is there, and making it again is refused in more than one way.
                with suppress(client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists):
                    client.create_bucket(Bucket="ready")
                client.put_object(Bucket="ready", Key="ready", Body=b"ready")
                return
            except (BotoCoreError, ClientError) as error:
                if time.monotonic() > end:
                    log = (self.seaweed.folder / "log").read_text(errors="replace")
                    pytest.fail(f"the S3 server did not start ({error}): {log[-4000:]}")
                time.sleep(0.2)


@contextmanager
def restartable_s3(volumes: int = 100) -> Iterator[RestartableS3]:
    """A new, running server; its data goes when the block ends."""
    # Its sockets need a path shorter than pytest's folders.
    with tempfile.TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True) as name:
        ports = dict(zip(PORT_NAMES, free_ports(len(PORT_NAMES)), strict=True))
        seaweed = Seaweed(Path(name), ports, volume_mb=64, volumes=volumes)
        server = RestartableS3(seaweed, secrets.token_hex(8), secrets.token_hex(16))
        seaweed.write_config(server.access_key, server.secret_key)
        server.start()
        try:
            server.wait()
            yield server
        finally:
            server.kill()
            for path in seaweed.litter:
                path.unlink(missing_ok=True)


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on; all different."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [server.getsockname()[1] for server in taken]
