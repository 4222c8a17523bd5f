"""Who works on a flow run, told on its labels, so that `sweep` knows when nobody does any more."""

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
BEAT = 60.0


@contextmanager
def working() -> Iterator[None]:
    """The frame of every flow: its owner and heartbeat are on its labels."""
    run, done = UUID(str(flow_run.id)), threading.Event()
    _tell(run, {OWNER: new_worker(), HEARTBEAT: time.time()})
    thread = threading.Thread(target=_beat, args=(run, done), name="heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()


def _beat(run: UUID, done: threading.Event) -> None:
    while not done.wait(BEAT):
        _tell(run, {HEARTBEAT: time.time()})


def _tell(run: UUID, labels: dict[str, str | float]) -> None:
    # A server that is away for a while ends no flow.
    with suppress(httpx.HTTPError), get_client(sync_client=True) as client:
        client.update_flow_run_labels(run, dict(labels))
