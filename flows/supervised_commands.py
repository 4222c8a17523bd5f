"""Runs the commands of tasks under a supervisor, so that they end with their flow run or at their time limit."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from prefect import get_client
from prefect.runtime import flow_run

from components.core import supervisor
from components.core.processes import CommandError
from flows.commands import GRACE, run_logged
from flows.retry_policy import fail_fast

_GRACE = GRACE / 2
"""Seconds that a stopped command gets from its supervisor, which itself has `GRACE` to end."""
_POLL = 0.2
_POLLS_PER_QUESTION = 25
"""Asking the Prefect server costs a request, so that is done every 5 s."""

_WAITING = "OMP_WAIT_POLICY"
_stopped: set[str] = set()
"""Flow runs of this process whose commands are to end."""


class StoppedError(Exception):
    """The flow ended before its command."""


class TimeLimitError(Exception):
    """A command took longer than it may."""


def run_supervised(
    command: Sequence[str],
    what: str,
    *,
    folder: Path,
    hours: float | None = None,
    environment: Mapping[str, str] | None = None,
    on_line: Callable[[str], None] | None = None,
) -> str:
    """Run `command` for a task of a flow run, and log its lines; nothing of it outlives the flow run.

    Args:
        command: the command and its arguments.
        what: its name in messages.
        folder: where it runs.
        hours: how long it may take; None for as long as it likes.
        environment: variables that it has besides this process's.
        on_line: called with every line.

    Returns:
        Its last line.

    Raises:
        CommandError: it failed; the message has its last lines.
        StoppedError: the flow ended first.
        TimeLimitError: it took longer than `hours`; it was ended.
    """
    with TemporaryDirectory(prefix="cliptune-") as temporary:
        token, late = Path(temporary) / "token", threading.Event()
        token.touch()
        arguments = [str(os.getpid()), str(_GRACE), str(folder), str(token)]
        supervised = [sys.executable, "-P", supervisor.__file__, *arguments, *command]
        try:
            with _ends_with_flow(token, hours, late):
                run_logged(supervised, what, {**_sleeping_threads(), **(environment or {})}, on_line)
        except CommandError:
            if late.is_set():
                raise TimeLimitError(f"{what} took longer than its {hours:g} hours and was ended") from None
            if not token.exists():
                raise StoppedError(f"{what} stopped with its flow") from None
            raise
        return token.with_name(supervisor.LAST).read_text("utf-8")


def _sleeping_threads() -> dict[str, str]:
    """The variable that makes waiting OpenMP threads sleep, so that commands that run side by side share the cores.

    It changes when threads run and nothing that they compute.
    """
    return {} if _WAITING in os.environ else {_WAITING: "PASSIVE"}


def stop_commands(flow_run_id: str) -> None:
    """End the supervised commands of a flow run that run in this process."""
    _stopped.add(flow_run_id)


@contextmanager
def stops_commands() -> Iterator[None]:
    """In a flow: whatever ends the block early ends the commands of the flow's tasks.

    Threads that wait for their commands would otherwise keep the process from ending.
    """
    try:
        yield
    except BaseException:
        stop_commands(str(flow_run.id))
        raise


@contextmanager
def _ends_with_flow(token: Path, hours: float | None, late: threading.Event) -> Iterator[None]:
    """Remove `token` as soon as this task's flow run is no longer running, or the time is over."""
    done = threading.Event()
    limit = None if hours is None else time.monotonic() + hours * 3600
    arguments = (str(flow_run.id), token, limit, late, done)
    watch = threading.Thread(target=copy_context().run, args=(_watch, *arguments), daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _watch(flow_run_id: str, token: Path, limit: float | None, late: threading.Event, done: threading.Event) -> None:
    polls = 0
    while not done.wait(_POLL):
        polls += 1
        if limit is not None and time.monotonic() > limit:
            late.set()
        stopped = flow_run_id in _stopped or (polls % _POLLS_PER_QUESTION == 0 and _has_ended(flow_run_id))
        if stopped or late.is_set():
            token.unlink(missing_ok=True)
            return


def _has_ended(flow_run_id: str) -> bool:
    import httpx

    try:
        # The watch has a time limit to keep, and the stage waits for the watch.
        with fail_fast(), get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(flow_run_id)).state
    except httpx.HTTPError:
        # A server that cannot be reached says nothing about the flow.
        return False
    return state is not None and not state.is_running()
