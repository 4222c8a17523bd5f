"""Ports and environment variables of the full stack's services and of their users."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from infra.credentials import Credentials
from infra.postgres import Postgres
from infra.seaweed import PORT_NAMES, Seaweed

HOST = "127.0.0.1"
REGION = "us-east-1"
BUCKETS = ("datasets", "dvc", "encoders", "mlflow")
DATABASES = ("cliptune", "mlflow", "prefect")
"""Of the generation store, MLflow and Prefect; the role that owns each has its name."""
MLFLOW_USER = PREFECT_USER = "admin"


@dataclass(frozen=True)
class FullStack:
    """Addresses and folders of one full stack.

    Attributes:
        folder: everything that it keeps.
        prefect_port: Prefect's API and pages.
        mlflow_port: MLflow's API and pages.
        postgres_port: PostgreSQL.
        s3_port: the S3 gateway; the seven ports above it belong to the same server.
        credentials: of all parts.
        binaries: PostgreSQL's programs.
    """

    folder: Path
    prefect_port: int
    mlflow_port: int
    postgres_port: int
    s3_port: int
    credentials: Credentials
    binaries: Path

    @property
    def prefect(self) -> str:
        """Prefect's pages; the API lies below at /api."""
        return f"http://{HOST}:{self.prefect_port}"

    @property
    def mlflow(self) -> str:
        """MLflow's pages and API."""
        return f"http://{HOST}:{self.mlflow_port}"

    @property
    def postgres(self) -> Postgres:
        """The database server."""
        return Postgres(self.binaries, self.folder / "postgres", self.postgres_port)

    @property
    def s3(self) -> Seaweed:
        """The object store."""
        names = ("s3.port", *(name for name in PORT_NAMES if name != "s3.port"))
        return Seaweed(self.folder / "s3", {name: self.s3_port + number for number, name in enumerate(names)})

    def ports(self) -> dict[str, int]:
        """Every port, by the option that changes it."""
        others = {f"--s3-port (part {name})": port for name, port in self.s3.ports.items()}
        named = {"prefect": self.prefect_port, "mlflow": self.mlflow_port, "postgres": self.postgres_port}
        return {f"--{name}-port": port for name, port in named.items()} | others

    def user_environment(self) -> dict[str, str]:
        """What a terminal and the worker need: clients' addresses and credentials, and nothing of the servers'."""
        return {
            "PREFECT_API_URL": f"{self.prefect}/api",
            "PREFECT_API_AUTH_STRING": f"{PREFECT_USER}:{self.credentials.prefect_admin}",
            "MLFLOW_TRACKING_URI": self.mlflow,
            "MLFLOW_TRACKING_USERNAME": MLFLOW_USER,
            "MLFLOW_TRACKING_PASSWORD": self.credentials.mlflow_admin,
            "AWS_ENDPOINT_URL_S3": self.s3.endpoint,
            "AWS_ACCESS_KEY_ID": self.credentials.s3_access_key,
            "AWS_SECRET_ACCESS_KEY": self.credentials.s3_secret_key,
            "AWS_DEFAULT_REGION": REGION,
            # For `synthesize.store: postgresql://cliptune@127.0.0.1/cliptune`: libpq looks the password up there.
            "PGPASSFILE": str((self.folder / "pgpass").resolve()),
        }

    def prefect_environment(self) -> dict[str, str]:
        """What Prefect's server needs besides."""
        database = self.postgres.url("prefect", self.credentials.postgres_prefect, "prefect")
        return {
            "PREFECT_SERVER_API_AUTH_STRING": f"{PREFECT_USER}:{self.credentials.prefect_admin}",
            "PREFECT_API_AUTH_STRING": f"{PREFECT_USER}:{self.credentials.prefect_admin}",
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": database.replace("postgresql://", "postgresql+asyncpg://"),
        }

    def mlflow_environment(self) -> dict[str, str]:
        """What MLflow's server needs besides: databases, artifacts, and its first user."""
        return {
            "MLFLOW_BACKEND_STORE_URI": self._mlflow_database(),
            "MLFLOW_ARTIFACTS_DESTINATION": "s3://mlflow/artifacts",
            "MLFLOW_S3_ENDPOINT_URL": self.s3.endpoint,
            "AWS_ACCESS_KEY_ID": self.credentials.s3_access_key,
            "AWS_SECRET_ACCESS_KEY": self.credentials.s3_secret_key,
            "AWS_DEFAULT_REGION": REGION,
            "MLFLOW_AUTH_CONFIG_PATH": str((self.folder / "mlflow-auth.ini").resolve()),
            "MLFLOW_AUTH_ADMIN_USERNAME": MLFLOW_USER,
            "MLFLOW_AUTH_ADMIN_PASSWORD": self.credentials.mlflow_admin,
            "MLFLOW_FLASK_SERVER_SECRET_KEY": self.credentials.mlflow_flask,
        }

    def private_files(self) -> dict[str, str]:
        """Files with secrets, by name: for terminals, for libpq, for MLflow."""
        users = {
            "default_permission": "NO_PERMISSIONS",
            "database_uri": self._mlflow_database(),
            "admin_username": MLFLOW_USER,
            "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
        }
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in self.user_environment().items())
        return {
            "env": exports,
            "pgpass": f"{HOST}:{self.postgres_port}:cliptune:cliptune:{self.credentials.postgres_cliptune}\n",
            "mlflow-auth.ini": "[mlflow]\n" + "".join(f"{name} = {value}\n" for name, value in users.items()),
        }

    def _mlflow_database(self) -> str:
        url = self.postgres.url("mlflow", self.credentials.postgres_mlflow, "mlflow")
        return url.replace("postgresql://", "postgresql+psycopg://")
