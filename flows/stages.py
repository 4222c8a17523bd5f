"""The Prefect task that runs one DVC stage. DVC decides which stages are out of date; Prefect caches nothing.

No two flows compute on one GPU of this machine, and a stage waits for its number of them.
"""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
from filelock import FileLock, Timeout
from platformdirs import user_cache_path
from prefect import State, Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.logging import get_run_logger

from components.core.system.processes import CommandError
from components.core.system.stage_graph import DVC
from flows.commands import run_supervised

HOURS = 24.0
"""Default time limit of a stage."""
PAUSE = 5.0
"""Seconds between two tries; a random half is added, so that waiting flows do not all try at the same time."""
_VISIBLE = "CUDA_VISIBLE_DEVICES"
_GPU_USERS = ("base", "embed", "students", "synthesize@", "train@", "evaluate@")
"""Stages that compute on a GPU, if available."""
# `--wait-for-lock` waits only for the lock of the checkout, not for those of a stage's files.
_BUSY = re.compile(r"is busy, it is being blocked by|Unable to acquire lock")
_HOLDER = re.compile(r"\(PID (\d+)\):")
_DAMAGED = re.compile(r"Unable to read RWLock-file|RWLock-file \S+ format error")
_FIX = "remove .dvc/tmp/rwlock while no DVC runs in this checkout, and run the flow again"
# Killed by the system (out of memory, a preempted machine), or a server or network was unavailable. For a command that
# a signal ended, DVC prints the negative number of the signal, a shell 128 plus the number.
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
    """Bring one stage up to date; wait for other runs of the pipeline, and for its GPUs.

    Args:
        name: the stage, such as `train@paraclip`.
        hours: its time limit, without waiting.
        ranks: the number of GPUs of a stage that trains.

    Returns:
        Its duration in seconds.

    Raises:
        CommandError: the stage failed; the message has its last lines.
        StoppedError: the flow ended first.
        TimeLimitError: it exceeded `hours`; its processes were ended.
    """
    # Only with --wait-for-lock and single stages can two flows work in one checkout.
    command = [*DVC, "--wait-for-lock", "repro", "--single-item", name]
    title, begun = f"stage {name}", time.monotonic()
    with own_gpus(name, ranks) as devices:

        def work() -> None:
            run_supervised(command, title, folder=Path.cwd(), hours=hours, environment=devices)

        when_free(work, title)
    return time.monotonic() - begun


def when_free(work: Callable[[], None], name: str) -> None:
    """Run `work`, which calls DVC, and repeat it while another run has locked the same files.

    DVC itself removes locks of dead processes. Two cases block it for ever: the number of a dead process now belongs to
    another process, or a killed process left its list of locks half written. Both end the stage with an instruction.

    Raises:
        CommandError: it failed for another reason, or would wait for ever.
    """
    ended: set[int] = set()
    is_logged = False
    while True:
        try:
            return work()
        except CommandError as error:
            if _DAMAGED.search(str(error)):
                raise CommandError(
                    f"error: .dvc/tmp/rwlock was left half written by a killed process: {_FIX}"
                ) from None
            if not _BUSY.search(str(error)):
                raise
            holders = {int(number) for number in _HOLDER.findall(str(error))}
        before, ended = ended, {number for number in holders if not _is_dvc(number)}
        # Two checks, because DVC removes the lock of a process that has just ended a moment later.
        if stale := before & ended:
            raise CommandError(f"error: .dvc/tmp/rwlock names process {min(stale)}, which is not DVC: {_FIX}")
        if not is_logged:
            numbers = ", ".join(map(str, sorted(holders))) or "unknown"
            get_run_logger().info("%s waits for another run that uses the same files (process %s)", name, numbers)
            is_logged = True
        time.sleep(PAUSE * random.uniform(1, 1.5))


def _is_dvc(number: int) -> bool:
    try:
        process = psutil.Process(number)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return any(Path(part).name in ("dvc", "dvc.exe") for part in process.cmdline())
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


@contextmanager
def own_gpus(stage: str, ranks: int) -> Iterator[Mapping[str, str]]:
    """Hold the GPUs of a stage, and wait until they are free. Without GPUs nothing waits.

    Args:
        ranks: GPUs that a `train@` stage uses; every other stage uses one.

    Yields:
        Environment variables that restrict the stage to its devices.
    """
    devices = _gpus() if stage.startswith(_GPU_USERS) else []
    wanted = min(ranks if stage.startswith("train@") else 1, len(devices))
    while True:
        with ExitStack() as held:
            chosen = _locked(devices, wanted, held)
            if len(chosen) == wanted:
                yield {_VISIBLE: ",".join(chosen)} if chosen else {}
                return
        time.sleep(1)


def _locked(devices: list[str], wanted: int, held: ExitStack) -> list[str]:
    """Lock up to `wanted` free devices of this host; the system releases those of a process that dies."""
    folder = user_cache_path("cliptune") / "gpus"
    folder.mkdir(parents=True, exist_ok=True)
    chosen: list[str] = []
    for device in devices:
        if len(chosen) == wanted:
            break
        lock = FileLock(folder / f"{socket.gethostname()}-{device.replace('/', '-')}.lock", thread_local=False)
        with suppress(Timeout):
            held.enter_context(lock.acquire(timeout=0))
            chosen.append(device)
    return chosen


def _gpus() -> list[str]:
    """The GPUs that this process may use: those of CUDA_VISIBLE_DEVICES, else all that the driver lists."""
    if _VISIBLE in os.environ:
        return [device for device in os.environ[_VISIBLE].split(",") if device]
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    lines = [line for line in done.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(lines))] if done.returncode == 0 else []
