"""The local stack without containers: Prefect server and worker, MLflow, all on 127.0.0.1, until Ctrl-C.

python -m infra.stack
python -m infra.stack --prefect-port 4300 --mlflow-port 5100
"""

from __future__ import annotations

import os
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

from components.core.errors import InputError, run_command
from components.tracking import STORE, tracking_uri
from infra.services import Services, answers, assert_ports_free, wait_until

HOST = "127.0.0.1"
STATE = Path("state")
POOLS = ("local", "gpu")
START_SECONDS = 300
"""A server's first start makes its database, which takes a minute on a small machine."""


def run(prefect_port: int, mlflow_port: int) -> None:
    """Start everything, print the addresses, and stay until told to stop.

    Raises:
        InputError: a port is taken, or a service does not start or ends by itself.
    """
    if not Path("prefect.yaml").is_file():
        raise InputError("prefect.yaml is missing: run the command in the project's folder")
    assert_ports_free({"--prefect-port": prefect_port, "--mlflow-port": mlflow_port})
    # Set for SIGINT too: a shell starts background commands with Ctrl-C ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    console = Console()
    prefect, mlflow = f"http://{HOST}:{prefect_port}", f"http://{HOST}:{mlflow_port}"
    with Services(STATE / "logs", environment(prefect, mlflow)) as services:
        try:
            _start(services, console, prefect, mlflow)
            _announce(console, prefect, mlflow)
            services.watch()
        except KeyboardInterrupt:
            console.print("stopping")
    console.print("stopped")


def environment(prefect: str, mlflow: str = "") -> Mapping[str, str]:
    """What the services see: the checkout, its own Prefect home, where the MLflow pages are, no analytics."""
    return {
        **os.environ,
        "CLIPTUNE_MLFLOW_PAGES": mlflow,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "CLIPTUNE_HOME": str(Path.cwd()),
        "PREFECT_HOME": str((STATE / "prefect").resolve()),
        "PREFECT_API_URL": f"{prefect}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        # SQLite has one writer at a time; on a busy machine the default of 10 s is too short.
        "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
        "DO_NOT_TRACK": "1",
        # Otherwise MLflow keeps half a dozen processes for jobs that nobody here submits.
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "PYTHONUNBUFFERED": "1",
        # One page width for logs that nobody watches on a terminal.
        "COLUMNS": "160",
    }


def _start(services: Services, console: Console, prefect: str, mlflow: str) -> None:
    tool = [sys.executable, "-m", "prefect"]
    with console.status("Prefect server: starting (the first start takes a minute)") as status:
        started = time.monotonic()

        def tick(what: str) -> None:
            status.update(f"{what}: starting, {time.monotonic() - started:.0f} s (the first start takes a minute)")

        port = prefect.rpartition(":")[2]
        services.start("prefect-server", [*tool, "server", "start", "--host", HOST, "--port", port])
        # Not on the command line, which everybody on this machine can read: it may hold a password.
        services.start("mlflow", _mlflow(mlflow), {"MLFLOW_BACKEND_STORE_URI": tracking_uri()})
        wait_until(
            lambda: answers(f"{prefect}/api/health"), services, START_SECONDS, "Prefect", lambda: tick("Prefect")
        )
        status.update("Prefect: making work pools and deployments")
        for pool in POOLS:
            command = [*tool, "work-pool", "create", pool, "--type", "process", "--overwrite"]
            services.call(f"work-pool-{pool}", command)
        if shutil.which("nvidia-smi"):
            services.call("gpu-tokens", [sys.executable, "-m", "infra.gpu_tokens"])
        services.call("deploy", [*tool, "--no-prompt", "deploy", "--all"])
        services.start(
            "worker", [*tool, "worker", "start", "--pool", POOLS[0], "--type", "process", "--name", POOLS[0]]
        )
        wait_until(lambda: answers(f"{mlflow}/health"), services, START_SECONDS, "MLflow", lambda: tick("MLflow"))


def _mlflow(address: str) -> list[str]:
    STORE.mkdir(exist_ok=True)
    port = address.rpartition(":")[2]
    command = [sys.executable, "-m", "mlflow", "server", "--host", HOST, "--port", port, "--workers", "1"]
    return [*command, "--default-artifact-root", str((STORE / "artifacts").resolve())]


def _announce(console: Console, prefect: str, mlflow: str) -> None:
    console.print(f"Prefect  {prefect}\nMLflow   {mlflow}\nlogs     {STATE / 'logs'}/", highlight=False)
    console.print("\nIn another terminal, in this folder:", highlight=False)
    console.print(
        f"  export PREFECT_API_URL={prefect}/api\n"
        f"  {programs()}/prefect deployment run train-paraclip/local --watch\n\n"
        "Ctrl-C stops all of it.",
        highlight=False,
        soft_wrap=True,
    )


def programs() -> Path:
    """The folder of this environment's commands, as short as it can be written."""
    folder = Path(sys.executable).parent
    return folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder


def interrupt(_number: int, _frame: FrameType | None) -> None:
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
