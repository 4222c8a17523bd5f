"""The heartbeat of a flow run: labels with its process and its last sign of life, by which `sweep` finds dead runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

import httpx
from prefect import get_client
from prefect.runtime import flow_run

from components.core.worker_identity import new_worker

OWNER, HEARTBEAT = "cliptune.owner", "cliptune.heartbeat"
"""Labels of a flow run: who works on it (see `components.core.worker_identity`), and when it last showed life, in
seconds since 1970."""
INTERVAL_S = 60.0
"""Seconds between two heartbeats."""


@contextmanager
def heartbeat() -> Iterator[None]:
    """Around the work of every flow: keeps its owner and heartbeat on its labels."""
    run, done = UUID(str(flow_run.id)), threading.Event()
    _set_labels(run, {OWNER: new_worker(), HEARTBEAT: time.time()})
    thread = threading.Thread(target=_repeat, args=(run, done), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def _repeat(run: UUID, done: threading.Event) -> None:
    while not done.wait(INTERVAL_S):
        _set_labels(run, {HEARTBEAT: time.time()})


def _set_labels(run: UUID, labels: dict[str, str | float]) -> None:
    # A server that is away for a while ends no flow.
    with suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        client.update_flow_run_labels(run, dict(labels))
