"""The Prefect task that answers one shard of a prompt task."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.logging.handlers import APILogHandler

from components.core.errors import InputError
from components.core.processes import CommandError
from flows.supervised_commands import run_supervised

HOME = "CLIPTUNE_HOME"
"""Environment variable of a worker on another host: the folder of its checkout."""


@dataclass(frozen=True)
class Outcome:
    """What a shard did: counts by name, such as `generated`, and who did it."""

    worker: str
    counts: dict[str, int]


def may_pass(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed shard is worth another try: not if the user must fix something, nor if the flow has ended."""
    fault = state.data
    return isinstance(fault, CommandError) and not str(fault).splitlines()[-1].startswith("error: ")


@task(
    cache_policy=NO_CACHE,
    task_run_name="{name} {shard}",
    retries=2,
    retry_delay_seconds=[10, 60],
    retry_jitter_factor=0.5,
    retry_condition_fn=may_pass,
)
def run_shard(name: str, shard: str, home: str, host: str, process: int) -> Outcome:
    """Have a child process answer one shard of a prompt task's rows into the store.

    Args:
        name: the prompt task.
        shard: which of how many, such as `0/4`.
        home: folder of the checkout on `host`.
        host: where the flow runs; workers elsewhere have a checkout of their own.
        process: the flow's process on that host.

    Raises:
        CommandError: the shard failed; the message has its last lines.
        InputError: this worker has no checkout.
        StoppedError: the flow ended first.
    """
    command = [sys.executable, "-m", "components.captions.synthesize", "--task", name, "--shard", shard]
    try:
        last = run_supervised(command, f"shard {shard} of {name}", folder=checkout(home, host))
    finally:
        # Ray ends its workers with the flow's last task, whatever lines they have not sent yet.
        if (socket.gethostname(), os.getpid()) != (host, process):
            APILogHandler().flush()
    worker = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
    counts = re.findall(r"([a-z]+) (\d+)\b", last.rpartition(":")[2])
    return Outcome(worker, {word: int(number) for word, number in counts})


def checkout(home: str, host: str) -> Path:
    """Where this worker has the project: the flow's own folder on the flow's host, else what the worker was told.

    Raises:
        InputError: there is no checkout; the message names the folder.
    """
    folder = Path(home if socket.gethostname() == host else os.environ.get(HOME, home))
    if not (folder / "params.yaml").is_file():
        raise InputError(f"worker {socket.gethostname()} has no checkout in {folder}: set {HOME} on it to its folder")
    return folder
