"""The full stack, once for all these tests: PostgreSQL, S3, MLflow with users, Prefect with a password, a worker.

On an idle machine the start takes about a minute and a half.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest
import yaml

from tests.integration.conftest import free_ports

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]
pytest.importorskip("flask_wtf", reason="MLflow's users need Flask-WTF: pip install 'cliptune[stack]'")
REPO = Path(__file__).parents[2]
_UP_WITHIN = 900.0


@dataclass(frozen=True)
class Running:
    """A full stack at work."""

    process: subprocess.Popen[bytes]
    folder: Path
    environment: dict[str, str]

    @property
    def secrets(self) -> list[str]:
        return list(yaml.safe_load((self.folder / "credentials.yaml").read_text()).values())

    def family(self) -> list[psutil.Process]:
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]


def _row_of_ports() -> int:
    """A port with seven free ones above it."""
    for port in range(20_000 + os.getpid() % 20_000, 60_000, 8):
        if not any(connection.laddr.port in range(port, port + 8) for connection in psutil.net_connections("tcp")):
            return port
    pytest.fail("no eight free ports in a row")


@pytest.fixture(scope="module")
def stack() -> Iterator[Running]:
    """The stack in a new folder; it is told to stop as Ctrl-C would, and must be gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="stack-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        folder, ports = Path(name) / "full", free_ports(3)
        command = [sys.executable, "-m", "infra.stack_full", "--folder", str(folder), "--s3-port", str(_row_of_ports())]
        for option, port in zip(("prefect", "mlflow", "postgres"), ports, strict=True):
            command += [f"--{option}-port", str(port)]
        log = Path(name) / "out"
        with log.open("wb") as stream:
            process = subprocess.Popen(command, cwd=REPO, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL)
        try:
            end = time.monotonic() + _UP_WITHIN
            while "Ctrl-C stops" not in log.read_text():
                if process.poll() is not None or time.monotonic() > end:
                    pytest.fail(f"the stack did not start: {log.read_text()}")
                time.sleep(0.5)
            yield Running(process, folder, {**os.environ, **_exports(folder / "env")})
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(timeout=300)
    for path in Path("/tmp").glob("seaweedfs-*.sock"):
        if not any(str(path) in str(connection.laddr) for connection in psutil.net_connections("unix")):
            path.unlink(missing_ok=True)


def _exports(path: Path) -> dict[str, str]:
    shown = subprocess.run(["bash", "-c", f". {path}; env -0"], capture_output=True, text=True, check=True).stdout
    found = dict(line.partition("=")[::2] for line in shown.split("\0") if line)
    return {name: value for name, value in found.items() if f"export {name}=" in path.read_text()}


def test_doctor_finds_everything_well(stack: Running) -> None:
    end = time.monotonic() + 120
    while True:
        command = [sys.executable, "-m", "components.cli", "doctor", "--json"]
        done = subprocess.run(command, cwd=REPO, env=stack.environment, capture_output=True, text=True, check=False)
        lines = {line["check"]: line for line in json.loads(done.stdout)}
        states = {name: lines[name]["status"] for name in ("Prefect API", "tracking", "S3", "clock")}
        # The pool for GPU workers has none here.
        if lines["work pools and workers"]["status"] == "warn" or time.monotonic() > end:
            break
    assert states == dict.fromkeys(states, "ok"), lines
    assert "local: 1 online" in lines["work pools and workers"]["detail"]
    assert not any(secret in done.stdout for secret in stack.secrets)


def test_nothing_answers_without_a_password(stack: Running) -> None:
    prefect, mlflow = stack.environment["PREFECT_API_URL"], stack.environment["MLFLOW_TRACKING_URI"]
    assert httpx.post(f"{prefect}/flows/filter", json={}).status_code == 401
    assert httpx.get(f"{mlflow}/api/2.0/mlflow/experiments/search?max_results=1").status_code == 401
    assert httpx.get(stack.environment["AWS_ENDPOINT_URL_S3"]).status_code == 403
    port = (stack.folder / "pgpass").read_text().split(":")[1]
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(f"postgresql://postgres:postgres@127.0.0.1:{port}/postgres")
    # The password file is enough for the generation store.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(stack.folder / "pgpass"))
        psycopg.connect(f"postgresql://cliptune@127.0.0.1:{port}/cliptune").close()


def test_everything_listens_on_this_machine_alone(stack: Running) -> None:
    members = {member.pid for member in stack.family()}
    listening = [one for one in psutil.net_connections("inet") if one.status == "LISTEN" and one.pid in members]
    assert len(listening) >= 11
    assert {one.laddr.ip for one in listening} <= {"127.0.0.1", "::1"}


def test_secrets_are_in_private_files_alone(stack: Running) -> None:
    for name in ("credentials.yaml", "env", "pgpass", "mlflow-auth.ini", "s3/s3.json"):
        assert stat.S_IMODE((stack.folder / name).stat().st_mode) == 0o600, name
    logs = "".join(path.read_text(errors="replace") for path in (stack.folder / "logs").iterdir())
    commands = "".join(" ".join(member.cmdline()) for member in stack.family())
    assert not any(secret in logs + commands for secret in stack.secrets)


def test_runs_lie_in_postgresql_and_artifacts_in_s3(stack: Running, tmp_path: Path) -> None:
    script = """
import pathlib, sys
from components.tracking import make_client
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
    environment = stack.environment | {"PYTHONPATH": os.pathsep.join([str(REPO), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    secrets = yaml.safe_load((stack.folder / "credentials.yaml").read_text())
    port = (stack.folder / "pgpass").read_text().split(":")[1]
    with psycopg.connect(f"postgresql://mlflow:{secrets['postgres_mlflow']}@127.0.0.1:{port}/mlflow") as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    with psycopg.connect(f"postgresql://prefect:{secrets['postgres_prefect']}@127.0.0.1:{port}/prefect") as connection:
        found: Any = connection.execute("SELECT count(*) FROM deployment").fetchone()
        assert found[0] >= 4
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            patch.setenv(name, stack.environment[name])
        from components.core.storage import S3

        assert [url for url in S3().list("s3://mlflow/") if url.endswith("/weights.bin")] != []


def test_ctrl_c_leaves_nothing_behind(stack: Running) -> None:
    """The last test, as the stack is gone afterwards."""
    family = stack.family()
    stack.process.send_signal(signal.SIGINT)
    assert stack.process.wait(timeout=300) == 0
    _, alive = psutil.wait_procs(family, timeout=30)
    assert alive == []
    assert (stack.folder / "postgres" / "PG_VERSION").is_file()
