"""One shard of a prompt task as a Prefect task, on whatever worker the task runner gives it to."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

from prefect import State, Task, get_client, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import TaskRun
from prefect.runtime import flow_run

from components.errors import InputError
from flows import leash
from flows.commands import GRACE, CommandError, run_logged

HOME = "CLIPTUNE_HOME"
"""Environment variable of a worker on another host: the folder of its checkout."""
_GRACE = GRACE / 2
"""Seconds that a stopped shard gets from its leash, which itself has `GRACE` to end."""
_POLL = 0.2
_POLLS_PER_QUESTION = 25
"""Asking the Prefect server costs a request, so that is done every 5 s."""

_stopped: set[str] = set()
"""Flow runs of this process whose shards are to end."""


class StoppedError(Exception):
    """The flow ended before its shard."""


@dataclass(frozen=True)
class Outcome:
    """What a shard did: counts by name, such as `generated`, and who did it."""

    worker: str
    counts: dict[str, int]


def may_pass(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed shard is worth another try: not if the user must mend something, nor if the flow has ended."""
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
def run_shard(name: str, shard: str, home: str, host: str) -> Outcome:
    """Have a child process answer one shard of a prompt task's rows into the store.

    Args:
        name: the prompt task.
        shard: which of how many, such as `0/4`.
        home: folder of the checkout on `host`.
        host: where the flow runs; workers elsewhere have a checkout of their own.

    Raises:
        CommandError: the shard failed; the message has its last lines.
        InputError: this worker has no checkout.
        StoppedError: the flow ended first.
    """
    folder = checkout(home, host)
    command = [sys.executable, "-m", "components.captions.synthesize", "--task", name, "--shard", shard]
    with TemporaryDirectory(prefix="cliptune-") as temporary:
        token = Path(temporary) / "token"
        token.touch()
        tied = [sys.executable, leash.__file__, str(os.getpid()), str(_GRACE), str(folder), str(token), *command]
        try:
            with _ends_with_flow(token):
                run_logged(tied, f"shard {shard} of {name}")
        except CommandError:
            if not token.exists():
                raise StoppedError(f"shard {shard} of {name} stopped with its flow") from None
            raise
        last = token.with_name(leash.LAST).read_text("utf-8")
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


def stop_shards(flow_run_id: str) -> None:
    """End the shards of a flow run that work in this process."""
    _stopped.add(flow_run_id)


@contextmanager
def _ends_with_flow(token: Path) -> Iterator[None]:
    """Remove `token` as soon as this task's flow run is no longer running."""
    done = threading.Event()
    watch = threading.Thread(target=copy_context().run, args=(_watch, str(flow_run.id), token, done), daemon=True)
    watch.start()
    try:
        yield
    finally:
        done.set()
        watch.join()


def _watch(flow_run_id: str, token: Path, done: threading.Event) -> None:
    polls = 0
    while not done.wait(_POLL):
        polls += 1
        if flow_run_id in _stopped or (polls % _POLLS_PER_QUESTION == 0 and _has_ended(flow_run_id)):
            token.unlink(missing_ok=True)
            return


def _has_ended(flow_run_id: str) -> bool:
    import httpx

    try:
        with get_client(sync_client=True) as client:
            state = client.read_flow_run(UUID(flow_run_id)).state
    except httpx.HTTPError:
        # A server that cannot be reached says nothing about the flow.
        return False
    return state is not None and not state.is_running()
