"""The local stack without containers: Prefect server and worker, MLflow, all on 127.0.0.1, until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from components.core.system.errors import InputError, run_command
from components.core.tracking import STORE, tracking_uri
from components.core.tracking.address import relocate
from infra.compose_env import write_env
from infra.services import Services, assert_ports_free, is_healthy

HOST = "127.0.0.1"
STATE = Path("state")
LOGIN = STATE / "stack" / "login.env"
"""The user and the password of both servers: a page in the browser, or another user of the machine, has neither."""
USER = "admin"
POOLS = ("local", "gpu")
START_SECONDS = 300
"""The first start of a server makes its database, which takes a minute on a small machine."""


def run(prefect_port: int, mlflow_port: int) -> None:
    """Start everything, print the addresses, and run until Ctrl-C."""
    if not Path("prefect.yaml").is_file():
        raise InputError("prefect.yaml is missing: run the command in the project's folder")
    assert_ports_free({"--prefect-port": prefect_port, "--mlflow-port": mlflow_port})
    # SIGINT too: a shell starts background commands with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    console = Console()
    prefect, mlflow = f"http://{HOST}:{prefect_port}", f"http://{HOST}:{mlflow_port}"
    is_new = not LOGIN.exists()
    login = read_login()
    with Services(STATE / "logs", environment(prefect, mlflow) | login) as services:
        try:
            _start(services, console, prefect, mlflow, login)
            _announce(console, prefect, mlflow, login if is_new else {})
            services.watch()
        except KeyboardInterrupt:
            console.print("stopping")
    console.print("stopped")


def read_login() -> dict[str, str]:
    """The variables of `LOGIN`, which the first start makes."""
    if not LOGIN.exists():
        # MLflow keeps the password that it had when it made its list of users.
        shutil.rmtree(LOGIN.parent, ignore_errors=True)
        password = secrets.token_hex(16)
        names = {"PREFECT_API_AUTH_STRING": f"{USER}:{password}", "MLFLOW_TRACKING_USERNAME": USER}
        names["MLFLOW_TRACKING_PASSWORD"] = password
        write_env(LOGIN, (f"{name}={value}" for name, value in names.items()))
    if LOGIN.stat().st_mode & 0o077:
        raise InputError(f"{LOGIN} can be read by other users: run `chmod 600 {LOGIN}`")
    return dict(line.split("=", 1) for line in LOGIN.read_text("utf-8").split())


def environment(prefect: str, mlflow: str = "") -> dict[str, str]:
    """Environment of the services: the checkout, a Prefect home in `state`, the address of the MLflow pages."""
    return {
        **os.environ,
        "CLIPTUNE_MLFLOW_PAGES": mlflow,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "CLIPTUNE_HOME": str(Path.cwd()),
        "PREFECT_HOME": str((STATE / "prefect").resolve()),
        "PREFECT_API_URL": f"{prefect}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # By default the pages of every site may use the API.
        "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": prefect,
        # SQLite allows one writer at a time; on a busy machine the default of 10 s is too short.
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
        "DO_NOT_TRACK": "1",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        # Otherwise MLflow starts half a dozen processes for jobs that this project never submits.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONUNBUFFERED": "1",
        # The page width of logs.
        "COLUMNS": "160",
    }


def _start(services: Services, console: Console, prefect: str, mlflow: str, login: Mapping[str, str]) -> None:
    tool = [sys.executable, "-m", "prefect"]
    with console.status("Prefect server: starting (the first start takes a minute)") as status:
        started = time.monotonic()

        def wait(name: str, address: str) -> None:
            def tick() -> None:
                status.update(f"{name}: starting, {time.monotonic() - started:.0f} s (the first start takes a minute)")

            services.wait_until(lambda: is_healthy(address), START_SECONDS, name, tick)

        port = prefect.rpartition(":")[2]
        services.start(
            "prefect-server",
            [*tool, "server", "start", "--host", HOST, "--port", port],
            {"PREFECT_SERVER_API_AUTH_STRING": login["PREFECT_API_AUTH_STRING"]},
        )
        # The address may hold a password, which a command line would show to every user of this machine.
        services.start("mlflow", _mlflow(mlflow), _mlflow_users(login) | {"MLFLOW_BACKEND_STORE_URI": tracking_uri()})
        wait("Prefect", f"{prefect}/api/health")
        status.update("Prefect: making work pools and deployments")
        for pool in POOLS:
            command = [*tool, "work-pool", "create", pool, "--type", "process", "--overwrite"]
            services.call(f"work-pool-{pool}", command)
        services.call("deploy", [*tool, "--no-prompt", "deploy", "--all"])
        services.start(
            "worker", [*tool, "worker", "start", "--pool", POOLS[0], "--type", "process", "--name", POOLS[0]]
        )
        wait("MLflow", f"{mlflow}/health")


def _mlflow(address: str) -> list[str]:
    STORE.mkdir(exist_ok=True)
    relocate((STORE / "mlflow.db").resolve())
    port = address.rpartition(":")[2]
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", port, "--workers", "1"]
    hosts = f"{HOST}:{port},localhost:{port}"
    artifacts = str((STORE / "artifacts").resolve())
    return [*command, "--app-name", "basic-auth", "--allowed-hosts", hosts, "--default-artifact-root", artifacts]


def _mlflow_users(login: Mapping[str, str]) -> dict[str, str]:
    """The variables of MLflow's authentication; its list of users stands beside the login."""
    config = LOGIN.with_name("mlflow-auth.ini").resolve()
    config.write_text(
        f"[mlflow]\ndefault_permission = NO_PERMISSIONS\ndatabase_uri = sqlite:///{config.with_suffix('.db')}\n",
        encoding="utf-8",
    )
    return {
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_USERNAME": login["MLFLOW_TRACKING_USERNAME"],
        "MLFLOW_AUTH_ADMIN_PASSWORD": login["MLFLOW_TRACKING_PASSWORD"],
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_hex(16),
    }


def _announce(console: Console, prefect: str, mlflow: str, new: Mapping[str, str]) -> None:
    """Print addresses, where the login is, and a login that was just made."""
    made = f": {new['PREFECT_API_AUTH_STRING']}" if new else ""
    console.print(f"Prefect  {prefect}\nMLflow   {mlflow}\nlogs     {STATE / 'logs'}/", highlight=False)
    console.print(f"login    in {LOGIN}{made}", highlight=False, soft_wrap=True)
    console.print("\nIn another terminal, in this folder:", highlight=False)
    console.print(
        f"  export PREFECT_API_URL={prefect}/api; set -a; . {LOGIN}; set +a\n"
        f"  {_programs()}/prefect deployment run train-paraclip/local --watch\n\n"
        "Ctrl-C stops all of it.",
        highlight=False,
        soft_wrap=True,
    )


def _programs() -> Path:
    """The folder of this environment's commands, relative to the current folder where possible."""
    folder = Path(sys.executable).parent
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal as Ctrl-C."""
    raise KeyboardInterrupt


def main(
    prefect_port: Annotated[int, typer.Option(help="Port of Prefect and its pages.", min=1, max=65535)] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow pages.", min=1, max=65535)] = 5000,
) -> None:
    """Run Prefect (server and worker) and MLflow on this machine until Ctrl-C.

    Examples: python -m infra.stack; python -m infra.stack --prefect-port 4300 --mlflow-port 5100
    """
    run_command(lambda: run(prefect_port, mlflow_port))


if __name__ == "__main__":
    typer.run(main)
