"""Runs commands for the tasks of a flow run. A supervisor ends them with the flow run or at their time limit."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from uuid import UUID

import httpx
from prefect import get_client
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from components.core.system.processes import CommandError, end, supervised

TAIL = 15
"""Number of last lines of a failed command that its error repeats."""
GRACE_S = 10.0
"""Seconds in which a stopped command can save its state; Prefect itself waits 30 s for the flow."""
_POLL_S = 0.2
_POLLS_PER_REQUEST = 25
"""The state of the flow run is requested from the Prefect server every 5 s."""

_stopped: set[str] = set()
"""Flow runs of this process whose commands must end."""


class StoppedError(Exception):
    """The flow ended before its command."""


class TimeLimitError(Exception):
    """A command exceeded its time limit."""


def run_supervised(
    command: Sequence[str],
    name: str,
    *,
    folder: Path,
    hours: float | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run `command` for a task of a flow run, and log its lines; none of its processes outlives the flow run.

    Args:
        hours: its time limit; None for no limit.
        environment: variables added to those of this process.

    Raises:
        CommandError: it failed; the message has its last lines.
        StoppedError: the flow ended first.
        TimeLimitError: it exceeded `hours` and was ended.
    """
    logger = get_run_logger()
    tail: deque[str] = deque(maxlen=TAIL)
    process = subprocess.Popen(
        supervised(command, GRACE_S),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**_environment(), **(environment or {})},
    )
    assert process.stdout is not None
    try:
        with _ends_with_flow(process, name, hours) as reasons, process.stdout as lines:
            # Text mode turns the carriage returns of progress bars into line ends.
            for text in filter(None, map(str.rstrip, lines)):
                tail.append(text)
                logger.info("%s", text)
            status = process.wait()
    finally:
        end(process, 2 * GRACE_S)
    if status and reasons:
        raise reasons[0]
    if status:
        last = "\n".join(tail)
        raise CommandError(f"{name} failed with exit code {status}; its last lines:\n{last}")


def _environment() -> dict[str, str]:
    """This process's environment with its Python first on the path, because stages call `python`.

    Waiting OpenMP threads sleep, so that parallel commands share the cores; this changes no result.
    """
    folder = str(Path(sys.executable).parent)
    path = f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PATH": path, "PYTHONUNBUFFERED": "1"}


@contextmanager
def _ends_with_flow(
    process: subprocess.Popen[str], name: str, hours: float | None
) -> Iterator[list[StoppedError | TimeLimitError]]:
    """End the supervisor when this task's flow run is no longer running, or at the time limit; yields the reasons."""
    done, flow_run_id = threading.Event(), str(flow_run.id)
    reasons: list[StoppedError | TimeLimitError] = []
    limit = None if hours is None else time.monotonic() + hours * 3600

    def watch() -> None:
        polls = 0
        while not done.wait(_POLL_S):
            polls += 1
            if limit is not None and time.monotonic() > limit:
                reasons.append(TimeLimitError(f"{name} took longer than its {hours:g} hours and was ended"))
            elif flow_run_id in _stopped or (polls % _POLLS_PER_REQUEST == 0 and _has_ended(flow_run_id)):
                reasons.append(StoppedError(f"{name} stopped with its flow"))
            if reasons:
                process.terminate()
                return

    thread = threading.Thread(target=copy_context().run, args=(watch,), daemon=True)
    thread.start()
    try:
        yield reasons
    finally:
        done.set()
        thread.join()


def _has_ended(flow_run_id: str) -> bool:
    try:
        with fail_fast(), get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(flow_run_id)).state
    except httpx.HTTPError:
        # Without an answer the state is unknown.
        return False
    return state is not None and not state.is_running()


@contextmanager
def stops_commands() -> Iterator[None]:
    """In a flow: end the commands of the flow's tasks when the block ends early.

    Threads that wait for their commands would otherwise keep the process alive.
    """
    try:
        yield
    except BaseException:
        _stopped.add(str(flow_run.id))
        raise


@contextmanager
def fail_fast() -> Iterator[None]:
    """Requests to the Prefect server in this block fail immediately; by default they are repeated for minutes."""
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
        yield
