"""A Prefect server and a worker as `make stack` runs them, of which the server can be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from prefect import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_KEY, PREFECT_API_URL, temporary_settings

from infra.services import is_healthy
from infra.stack import environment
from tests.flows.conftest import Project
from tests.support.dvc_project import REPO, make_project
from tests.support.ports import free_ports
from tests.support.waiting import started, stop, wait_until

UP_WITHIN_S = 600.0
POOL = "local"
WAITING = "train@paraclip"
STAGES = {"prepare": [], "evaluate@base": ["prepare"], WAITING: ["prepare"], "evaluate@paraclip": [WAITING]}
_WAITS = f"""
import time
while name == "{WAITING}" and Path("wait").exists():
    time.sleep(0.02)
Path(f"{{name}}.ended").touch()
"""


@dataclass
class PrefectStack:
    """The servers of a project folder, which is the current one."""

    folder: Path
    port: int = field(default_factory=lambda: free_ports(1)[0])
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> Mapping[str, str]:
        return {**environment(self.address), "PYTHONPATH": str(REPO)}

    def start_server(self) -> None:
        self._start("server", ["server", "start", "--host", "127.0.0.1", "--port", str(self.port)])
        self.wait_for("the server", lambda: is_healthy(f"{self.address}/api/health"))

    def kill_server(self) -> None:
        """End the server as a power cut does."""
        process = self.running.pop("server")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def start_worker(self) -> subprocess.Popen[bytes]:
        """Start a worker of the pool `local`, without waiting."""
        return self._start("worker", ["worker", "start", "--pool", POOL, "--type", "process", "--name", POOL])

    def deploy(self, name: str) -> UUID:
        """Make the pool and the deployment `<name>/local` of prefect.yaml; returns its id."""
        entries = yaml.safe_load((REPO / "prefect.yaml").read_text("utf-8"))
        module = f"flows/train.py:{name.replace('-', '_')}"
        (entry,) = (one for one in entries["deployments"] if one["entrypoint"] == module and one["name"] == POOL)
        with get_client(sync_client=True) as client:
            client.create_work_pool(WorkPoolCreate(name=POOL, type="process"), overwrite=True)
            return client.create_deployment(
                client.create_flow_from_name(name),
                entry["name"],
                work_pool_name=POOL,
                pull_steps=entries["pull"],
                job_variables=entry["work_pool"].get("job_variables", {}),
                **{key: entry[key] for key in ("entrypoint", "parameters")},
            )

    def run(self, deployment: UUID) -> UUID:
        """Have a worker run the deployment; returns the flow run's id."""
        with get_client(sync_client=True) as client:
            return client.create_flow_run_from_deployment(deployment).id

    def flow_run(self, run: UUID) -> FlowRun:
        with get_client(sync_client=True) as client:
            return client.read_flow_run(run)

    def is_completed(self, run: UUID) -> bool:
        return bool((state := self.flow_run(run).state) and state.is_completed())

    def has_ended(self, run: UUID) -> bool:
        return bool((state := self.flow_run(run).state) and state.is_final())

    def wait_for(self, what: str, until: Callable[[], Any]) -> None:
        """Return when it is so; everything that runs must go on running."""

        def fault() -> str:
            logs = "\n".join(f"{name}: {self.log(name)[-6000:]}" for name in self.running)
            return f"{what} does not come about; the logs:\n{logs}"

        def is_so() -> bool:
            assert all(process.poll() is None for process in self.running.values()), fault()
            return bool(until())

        wait_until(is_so, UP_WITHIN_S, fault)

    def log(self, name: str) -> str:
        """The output of `server` or `worker`."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        command, log = [sys.executable, "-m", "prefect", *arguments], self.folder / f"{name}.log"
        self.running[name] = started(command, log, cwd=self.folder, env=dict(self.environment))
        return self.running[name]


@contextmanager
def prefect_stack(folder: Path) -> Iterator[PrefectStack]:
    """A running server for the project in `folder`, the current one; everything ends with the block."""
    stack = PrefectStack(folder)
    # Prefect makes its home in it.
    (folder / "state").mkdir(exist_ok=True)
    settings = {PREFECT_API_URL: f"{stack.address}/api", PREFECT_API_KEY: None, PREFECT_API_AUTH_STRING: None}
    with ExitStack() as ends, temporary_settings(settings):
        ends.callback(lambda: [stop(process) for process in reversed(stack.running.values())])
        stack.start_server()
        yield stack


def make_waiting_project(folder: Path) -> None:
    """Write a project for the flow `train-paraclip`, and its scores: no stage takes time but one, until `let_go`."""
    make_project(folder, STAGES)
    work = folder / "work.py"
    work.write_text(work.read_text() + _WAITS)
    (folder / "wait").touch()
    (folder / "flows").symlink_to(REPO / "flows")
    raw = yaml.safe_load((folder / "params.yaml").read_text())
    raw["methods"]["other"] = {"method": "paraclip", "train_data": "data/validated/paraclip"}
    # Nothing scores the third, so that the flow neither compares nor promotes.
    raw["compare_encoders"] = ["base", "paraclip", "other"]
    (folder / "params.yaml").write_text(yaml.safe_dump(raw))
    Project(folder).score("base", "paraclip")


def let_go(folder: Path) -> None:
    """End the wait, now and in later runs."""
    (folder / "wait").unlink()


def has_ended(folder: Path, stage: str) -> bool:
    return (folder / f"{stage}.ended").exists()
