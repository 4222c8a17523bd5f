"""The Prefect task that does one shard of a stage's work, and all shards on a runner."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefect import State, Task, task, unmapped
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.logging import get_run_logger
from prefect.logging.handlers import APILogHandler

from components.core.errors import InputError
from components.core.processes import CommandError
from flows.runners import AnyRunner
from flows.supervised_commands import run_supervised, stops_commands

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
def run_shard(name: str, command: Sequence[str], shard: str, home: str, host: str, process: int) -> Outcome:
    """Have a child process do one shard.

    Args:
        name: what is sharded: a prompt task or a stage.
        command: the module that does it, and its arguments besides `--shard`.
        shard: which of how many, such as `0/4`.
        home: folder of the checkout on `host`.
        host: where the flow runs; workers elsewhere have a checkout of their own.
        process: the flow's process on that host.

    Raises:
        CommandError: the shard failed; the message has its last lines.
        InputError: this worker has no checkout.
        StoppedError: the flow ended first.
    """
    whole = [sys.executable, "-m", *command, "--shard", shard]
    try:
        last = run_supervised(whole, f"shard {shard} of {name}", folder=checkout(home, host))
    finally:
        # Ray ends its workers with the flow's last task, whatever lines they have not sent yet.
        if (socket.gethostname(), os.getpid()) != (host, process):
            APILogHandler().flush()
    worker = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
    counts = re.findall(r"([a-z]+) (\d+)\b", last.rpartition(":")[2])
    return Outcome(worker, {word: int(number) for word, number in counts})


def over_shards(runner: AnyRunner, name: str, command: Sequence[str], shards: int) -> list[Outcome]:
    """Have the runner's workers do every shard; for `name` and `command` see `run_shard`.

    Raises:
        CommandError: shards failed; all others have ended.
    """
    home, host = str(Path.cwd()), socket.gethostname()
    numbers = [f"{number}/{shards}" for number in range(shards)]
    outcomes, faults = [], []
    shard: Task[..., Any] = run_shard
    with stops_commands():
        where = {"home": home, "host": host, "process": os.getpid()}
        futures = runner.map(shard, {"name": name, "command": unmapped(command), "shard": numbers, **where})
        for future in futures:
            try:
                outcomes.append(future.result())
            except Exception as fault:
                faults.append(fault)
    if faults:
        raise CommandError(f"{len(faults)} of {shards} shards of {name} failed, the first so: {faults[0]}")
    workers = len({outcome.worker for outcome in outcomes})
    told = ", ".join(f"{word} {count}" for word, count in summed(outcomes).items())
    get_run_logger().info("%s: %d shards by %d workers: %s", name, shards, workers, told)
    return outcomes


def summed(outcomes: Iterable[Outcome]) -> Counter[str]:
    """The counts of all shards together."""
    total: Counter[str] = Counter()
    for outcome in outcomes:
        total.update(outcome.counts)
    return total


def checkout(home: str, host: str) -> Path:
    """Where this worker has the project: the flow's own folder on the flow's host, else what the worker was told.

    Raises:
        InputError: there is no checkout; the message names the folder.
    """
    folder = Path(home if socket.gethostname() == host else os.environ.get(HOME, home))
    if not (folder / "params.yaml").is_file():
        raise InputError(f"worker {socket.gethostname()} has no checkout in {folder}: set {HOME} on it to its folder")
    return folder
