"""An S3 server (SeaweedFS) that a test can kill and start again on the same ports and with the same data."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.support.ports import free_ports
from tests.support.waiting import started, wait_until

_UP_WITHIN = 180.0
_PARTS = ("master", "volume", "filer", "s3")


@dataclass
class RestartableS3:
    """The server's folder, ports and keys, and its process while it runs."""

    folder: Path
    ports: Mapping[str, int]
    volumes: int
    access_key: str
    secret_key: str
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.ports['s3.port']}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def client(self) -> Any:
        """A client that does not retry."""
        keys = {"aws_access_key_id": self.access_key, "aws_secret_access_key": self.secret_key}
        config = Config(connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 1})
        return boto3.client("s3", endpoint_url=self.endpoint, region_name="us-east-1", config=config, **keys)

    def start(self) -> None:
        command = [
            *(str(Path(sys.executable).with_name("weed")), "server", f"-dir={self.folder}", "-master.telemetry=false"),
            *("-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.volumeSizeLimitMB=64", f"-volume.max={self.volumes}"),
            # By default it refuses to write where less than 1% of the disk is free.
            "-volume.minFreeSpace=100MiB",
            # By default it waits ten seconds for other readers.
            *("-volume.preStopSeconds=1", "-s3", f"-s3.config={self.folder / 's3.json'}"),
            *("-s3.port.iceberg=0", "-s3.port.lance=0"),
            *(f"-{part}.localSocket={self.folder / part}.sock" for part in ("s3", "filer")),
            *(f"-{name}={port}" for name, port in self.ports.items()),
        ]
        self.process = started(command, self.folder / "log", cwd=self.folder)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wait(self) -> None:
        """Return when objects can be written."""
        client, faults, log = self.client(), [], self.folder / "log"
        made_before = client.exceptions.BucketAlreadyOwnedByYou, client.exceptions.BucketAlreadyExists

        def is_written() -> bool:
            try:
                # After a restart the bucket exists, and making it again is refused in more than one way.
                with suppress(*made_before):
                    client.create_bucket(Bucket="ready")
                client.put_object(Bucket="ready", Key="ready", Body=b"ready")
            except (BotoCoreError, ClientError) as error:
                faults.append(error)
                assert self.process is None or self.process.poll() is None, log.read_text(errors="replace")[-4000:]
                return False
            return True

        wait_until(is_written, _UP_WITHIN, lambda: f"{faults[-1]}: {log.read_text(errors='replace')[-4000:]}")


@contextmanager
def restartable_s3(volumes: int = 100) -> Iterator[RestartableS3]:
    """A new, running server; its data is deleted when the block ends."""
    names = [f"{part}.port{kind}" for part in _PARTS for kind in ("", ".grpc")]
    # Its sockets need a path shorter than pytest's folders.
    with tempfile.TemporaryDirectory(prefix="s3-", ignore_cleanup_errors=True) as folder:
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        server = RestartableS3(Path(folder), ports, volumes, secrets.token_hex(8), secrets.token_hex(16))
        keys = {"accessKey": server.access_key, "secretKey": server.secret_key}
        user = {"name": "cliptune", "actions": ["Admin"], "credentials": [keys]}
        (server.folder / "s3.json").write_text(json.dumps({"identities": [user]}))
        server.start()
        try:
            server.wait()
            yield server
        finally:
            server.kill()
            for part in _PARTS:
                # A killed server leaves these sockets behind.
                Path(f"/tmp/seaweedfs-{part}-grpc-{ports[f'{part}.port.grpc']}.sock").unlink(missing_ok=True)
