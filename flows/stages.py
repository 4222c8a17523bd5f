"""The Prefect task that runs one DVC stage. DVC decides what is out of date; Prefect caches nothing."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import httpx
from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun

from components.core.system.processes import CommandError
from components.core.system.stage_graph import DVC
from flows.artifacts import progress_artifact
from flows.commands import run_supervised
from flows.gpus import gpu_tokens
from flows.shards import make_parts
from flows.waiting import when_free

HOURS = 24.0
"""Default time limit of a stage."""
# Killed from outside (memory, a machine taken away), or a server or network that was unavailable. For a command that a
# signal ended, DVC prints the negative number of the signal, a shell 128 plus the number.
_PASSING = re.compile(
    r"exited with (-9|-15|137|143)\b|Signal (9|15) \(SIG(KILL|TERM)\)|Connection(Error|Refused|Reset|Aborted)|"
    r"Connection (refused|reset|aborted)|Temporary failure in name resolution|Read timed out|"
    r"(502|503|504) (Bad Gateway|Service Unavailable|Gateway Time-?out)",
    re.IGNORECASE,
)


def can_pass(message: str) -> bool:
    """Whether a command's last lines show a fault that may not recur at the next try.

    A line that starts with `error: ` names something that the user must fix, so a retry is useless.
    """
    lines = message.splitlines()
    return not any(line.startswith("error: ") for line in lines) and _PASSING.search(message) is not None


def may_pass(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed stage is retried; also if Prefect's server gave no answer."""
    fault = state.data
    return isinstance(fault, httpx.TransportError) or (isinstance(fault, CommandError) and can_pass(str(fault)))


@task(
    cache_policy=NO_CACHE,
    task_run_name="{name}",
    retries=2,
    retry_delay_seconds=[30, 120],
    retry_jitter_factor=0.5,
    retry_condition_fn=may_pass,
)
def run_stage(name: str, hours: float | None = HOURS, ranks: int = 1) -> float:
    """Bring one stage up to date; wait for other runs of the pipeline, and for a GPU where those are counted.

    Args:
        name: the stage, such as `train@paraclip`.
        hours: its time limit, without waiting and without shards that workers process first.
        ranks: the number of GPUs of a stage that trains.

    Returns:
        Its duration in seconds.

    Raises:
        CommandError: the stage or a shard of it failed; the message has its last lines.
        StoppedError: the flow ended first.
        TimeLimitError: it exceeded `hours`; its processes were ended.
    """
    # Only with --wait-for-lock and single stages can two flows work in one checkout.
    command = [*DVC, "--wait-for-lock", "repro", "--single-item", name]
    title, begun = f"stage {name}", time.monotonic()
    make_parts(name)
    with gpu_tokens(name, ranks) as devices, progress_artifact(name) as on_line:

        def work() -> None:
            run_supervised(command, title, folder=Path.cwd(), hours=hours, environment=devices, on_line=on_line)

        when_free(work, title)
    return time.monotonic() - begun
