"""Spreads the shards of a stage over workers: threads of this process, a Ray or a Dask cluster."""

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
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner

from components.core.settings import PARAMS, Scale, load_settings
from components.core.system.errors import InputError
from components.core.system.processes import CommandError
from components.core.system.stage_graph import outdated, read_graph
from flows.commands import run_supervised, stops_commands

HOME = "CLIPTUNE_HOME"
"""Environment variable of a worker on another host: the folder of its checkout."""
_COMMANDS = {"prepare": "components.data.prepare", "embed": "components.encoders.embed"}
_LOOPBACK = "127.0.0.1"
AnyRunner = TaskRunner[Any]


@dataclass(frozen=True)
class ShardResult:
    """The counts of a shard by name, such as `generated`, and the worker that processed it."""

    worker: str
    counts: dict[str, int]


def make_parts(stage: str) -> None:
    """Have workers make all parts of `prepare` or `embed`, if it has a `scale`; the stage then joins them."""
    if stage not in _COMMANDS or not PARAMS.is_file():
        return
    settings = load_settings()
    block = settings.prepare if stage == "prepare" else settings.embed
    # The inputs of the stage may have been rewritten with the same content.
    if block.scale is None or stage not in outdated(read_graph(), [stage]):
        return
    if block.scale.address is not None and not block.state.is_absolute():
        text = "%s.state is %s in each host's own checkout: name a folder that all of them share"
        get_run_logger().warning(text, stage, block.state)
    with make_runner(block.scale, stage) as runner:
        over_shards(runner, stage, [_COMMANDS[stage]], block.scale.shards)


def over_shards(runner: AnyRunner, name: str, command: Sequence[str], shards: int) -> list[ShardResult]:
    """Have the runner's workers process every shard; for `name` and `command` see `run_shard`."""
    home, host = str(Path.cwd()), socket.gethostname()
    numbers = [f"{number}/{shards}" for number in range(shards)]
    results, faults = [], []
    shard: Task[..., Any] = run_shard
    with stops_commands():
        place = {"home": home, "host": host, "process": os.getpid()}
        futures = runner.map(shard, {"name": name, "command": unmapped(command), "shard": numbers, **place})
        for future in futures:
            try:
                results.append(future.result())
            except Exception as fault:
                faults.append(fault)
    if faults:
        raise CommandError(f"{len(faults)} of {shards} shards of {name} failed; the first error: {faults[0]}")
    workers = len({result.worker for result in results})
    counts = ", ".join(f"{word} {count}" for word, count in summed(results).items())
    get_run_logger().info("%s: %d shards by %d workers: %s", name, shards, workers, counts)
    return results


def summed(results: Iterable[ShardResult]) -> Counter[str]:
    """The counts of all shards together."""
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.counts)
    return total


def may_pass(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed shard is retried: not if the user must fix something, nor if the flow has ended."""
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
def run_shard(name: str, command: Sequence[str], shard: str, home: str, host: str, process: int) -> ShardResult:
    """Process one shard in a child process.

    Args:
        command: the module that processes the shard, and its arguments except `--shard`.
        shard: number and count, such as `0/4`.
        home, host, process: folder of the flow's checkout, its host and its process there.

    Raises:
        CommandError: the shard failed; the message has its last lines.
        InputError: this worker has no checkout.
        StoppedError: the flow ended first.
    """
    whole = [sys.executable, "-m", *command, "--shard", shard]
    try:
        last = run_supervised(whole, f"shard {shard} of {name}", folder=checkout(home, host))
    finally:
        # Ray ends its workers with the flow's last task, even if they have lines to send.
        if (socket.gethostname(), os.getpid()) != (host, process):
            APILogHandler().flush()
    worker = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
    counts = re.findall(r"([a-z]+) (\d+)\b", last.rpartition(":")[2])
    return ShardResult(worker, {word: int(number) for word, number in counts})


def checkout(home: str, host: str) -> Path:
    """The project on this worker: the flow's own folder on the flow's host, else the worker's CLIPTUNE_HOME."""
    folder = Path(home if socket.gethostname() == host else os.environ.get(HOME, home))
    if not (folder / "params.yaml").is_file():
        raise InputError(f"worker {socket.gethostname()} has no checkout in {folder}: set {HOME} on it to its folder")
    return folder


def make_runner(scale: Scale, stage: str) -> AnyRunner:
    """The task runner that a stage's `scale` describes; it starts when it is entered."""
    if scale.runner == "threads":
        return ThreadPoolTaskRunner(max_workers=scale.workers)
    try:
        return _ray(scale) if scale.runner == "ray" else _dask(scale)
    except ImportError as error:
        raise InputError(
            f"params.yaml: {stage}.scale.runner '{scale.runner}' lacks a package ({error}): "
            "run `make .venv/.ready`, which installs it"
        ) from None


def _ray(scale: Scale) -> AnyRunner:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Without "local" Ray would join any cluster that it finds on this machine.
    address, options = scale.address or "local", {}
    if scale.address is None:
        # Ray sets this variable itself on macOS and Windows: a cluster of one node that listens on loopback only.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        options = {"num_cpus": scale.workers, "include_dashboard": False, "_node_ip_address": _LOOPBACK}
    from prefect_ray import RayTaskRunner  # type: ignore[import-untyped]

    runner: AnyRunner = RayTaskRunner(address=address, init_kwargs=options)
    return runner


def _dask(scale: Scale) -> AnyRunner:
    # By default Prefect's log shows every connection of the cluster.
    os.environ.setdefault("DASK_LOGGING__DISTRIBUTED", "warning")
    from prefect_dask.task_runners import DaskTaskRunner

    if scale.address is not None:
        return DaskTaskRunner(address=scale.address)
    listening = {"host": _LOOPBACK, "dashboard_address": f"{_LOOPBACK}:0"}
    return DaskTaskRunner(cluster_kwargs={"n_workers": scale.workers, "threads_per_worker": 1, **listening})
