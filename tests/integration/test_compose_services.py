"""The services of infra/compose.yaml, run without containers: the same commands and environments, real servers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml

from components.core.pictures.storage import S3
from infra.compose_env import NAMES
from infra.services import Services, is_healthy
from tests.integration.postgres import PROGRAMS, PostgresServer
from tests.support.ports import free_ports
from tests.support.restartable_s3 import RestartableS3

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
REPO = Path(__file__).parents[2]
UP_WITHIN_S = 600.0


@dataclass
class Compose:
    """infra/compose.yaml with the addresses of this machine in place of the names of containers."""

    folder: Path
    secrets: dict[str, str]
    addresses: dict[str, str]
    content: dict[str, Any] = field(default_factory=lambda: yaml.safe_load((REPO / "infra/compose.yaml").read_text()))

    def filled(self, text: str) -> str:
        """A text of the file as the container receives it."""
        text = re.sub(r"\$\{(\w+)(?::\?[^}]*)?\}", lambda name: self.secrets[name[1]], text).replace("$$", "$")
        return re.sub("|".join(map(re.escape, self.addresses)), lambda name: self.addresses[name[0]], text)

    def environment(self, service: str) -> dict[str, str]:
        """The variables of a service."""
        variables = self.content["services"][service].get("environment", {})
        return {name: self.filled(value) for name, value in variables.items()}

    def database(self, role: str, password: str) -> str:
        """URL of the database that has the name of a role."""
        return f"postgresql://{role}:{password}{self.addresses['@postgres/']}{role}"

    def command(self, service: str) -> list[str]:
        """The command of a service."""
        command = self.content["services"][service]["command"]
        parts = shlex.split(command) if isinstance(command, str) else command
        return [self.filled(part) for part in parts]


@pytest.fixture(scope="module")
def compose(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, s3_server: RestartableS3
) -> Iterator[Compose]:
    """PostgreSQL with the databases of docker/databases.sh, S3 with its buckets, MLflow, Prefect and a worker."""
    folder, (mlflow, prefect) = tmp_path_factory.mktemp("compose"), free_ports(2)
    secrets = {name: f"{name.lower()}-secret" for name in NAMES} | {"LLM_MODEL": "none"}
    secrets |= {"S3_ACCESS_KEY": s3_server.access_key, "S3_SECRET_KEY": s3_server.secret_key}
    addresses = {
        "@postgres/": f"@127.0.0.1:{postgres_server.port}/",
        "http://s3:8333": s3_server.endpoint,
        "/etc/cliptune/mlflow-auth.ini": str(folder / "mlflow-auth.ini"),
        "http://mlflow:5000": f"http://127.0.0.1:{mlflow}",
        "http://prefect:4200": f"http://127.0.0.1:{prefect}",
        "--port=5000": f"--port={mlflow}",
        "4200": str(prefect),
        "0.0.0.0": "127.0.0.1",
        "--workers=2": "--workers=1",
    }
    made = Compose(folder, secrets, addresses)
    health = {"MLflow": f"http://127.0.0.1:{mlflow}/health", "Prefect": f"http://127.0.0.1:{prefect}/api/health"}
    (folder / "mlflow-auth.ini").write_text(made.filled(made.content["configs"]["mlflow"]["content"]))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    common = {name: value for name, value in os.environ.items() if not name.startswith(("AWS", "MLFLOW", "PREFECT"))}
    common |= {"PATH": path, "PREFECT_HOME": str(folder / "prefect"), "CLIPTUNE_HOME": str(REPO), "DO_NOT_TRACK": "1"}
    databases = {"PATH": f"{PROGRAMS}{os.pathsep}{path}", "PGHOST": "127.0.0.1", "PGPORT": str(postgres_server.port)}
    databases |= {"PGPASSWORD": postgres_server.password}
    subprocess.run([REPO / "infra/docker/databases.sh"], env={**made.environment("postgres"), **databases}, check=True)
    with Services(folder / "logs", common) as services:
        services.start("mlflow", made.command("mlflow"), made.environment("mlflow"))
        services.start("prefect", made.command("prefect"), made.environment("prefect"))
        services.call("buckets", made.command("buckets"), made.environment("buckets"))
        services.wait_until(lambda: is_healthy(health["Prefect"]), UP_WITHIN_S, "Prefect", lambda: None)
        services.call("deploy", made.command("deploy"), made.environment("deploy"))
        services.start("worker", made.command("worker"), made.environment("worker"))
        services.wait_until(lambda: is_healthy(health["MLflow"]), UP_WITHIN_S, "MLflow", lambda: None)
        yield made


def test_doctor_finds_no_fault_no_server_is_open_and_no_log_holds_a_secret(compose: Compose) -> None:
    command = [sys.executable, "-m", "components.cli", "doctor", "--json"]
    environment = os.environ | compose.environment("worker")
    done = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True, check=False)
    lines = {line["check"]: line for line in json.loads(done.stdout)}
    states = {name: lines[name]["status"] for name in ("Prefect API", "tracking", "generation store")}
    assert states == dict.fromkeys(states, "ok"), lines
    assert not any(secret in done.stdout for secret in compose.secrets.values())
    environment = compose.environment("worker")
    assert httpx.post(f"{environment['PREFECT_API_URL']}/flows/filter", json={}).status_code == 401
    search = f"{environment['MLFLOW_TRACKING_URI']}/api/2.0/mlflow/experiments/search?max_results=1"
    assert httpx.get(search).status_code == 401
    assert httpx.get(environment["AWS_ENDPOINT_URL_S3"]).status_code == 403
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(compose.database("postgres", "postgres"))
    logs = "".join(path.read_text(errors="replace") for path in (compose.folder / "logs").iterdir())
    assert not any(secret in logs for secret in compose.secrets.values())


def test_runs_are_in_postgresql_and_artifacts_in_s3(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import pathlib
from components.core.tracking import make_client
client = make_client()
run = client.create_run(client.create_experiment("stack"), run_name="one")
client.log_metric(run.info.run_id, "paraphrased_retrieval/ao_at_10", 0.5)
pathlib.Path("weights.bin").write_bytes(bytes(range(256)) * 4000)
client.log_artifact(run.info.run_id, "weights.bin")
client.create_registered_model("stack-encoder")
version = client.create_model_version("stack-encoder", f"runs:/{run.info.run_id}/weights.bin", run.info.run_id)
client.set_registered_model_alias("stack-encoder", "champion", version.version)
assert client.get_model_version_by_alias("stack-encoder", "champion").version == version.version
assert client.get_run(run.info.run_id).data.metrics == {"paraphrased_retrieval/ao_at_10": 0.5}
back = pathlib.Path(client.download_artifacts(run.info.run_id, "weights.bin", "."))
assert back.read_bytes() == bytes(range(256)) * 4000
"""
    worker = compose.environment("worker")
    environment = os.environ | worker | {"PYTHONPATH": str(REPO)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=compose.folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name, table, least in (("mlflow", "runs", 1), ("prefect", "deployment", 4)):
        password = compose.secrets[f"{name.upper()}_DATABASE_PASSWORD"]
        with psycopg.connect(compose.database(name, password)) as connection:
            count: Any = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            assert count[0] >= least, table
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, worker[name])
    assert [url for url in S3().etags("s3://mlflow/") if url.endswith("/weights.bin")] != []
