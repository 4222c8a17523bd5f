"""The progress artifact of a stage on its flow run's page in Prefect: percentage, last line and age."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from uuid import UUID

import httpx
from prefect.artifacts import create_progress_artifact, update_progress_artifact

from flows.retry_policy import fail_fast

INTERVAL_S = 10.0
"""Seconds between two updates."""
_PERCENT = re.compile(r"\b(\d{1,3})%")


@contextmanager
def progress_artifact(name: str) -> Iterator[Callable[[str], None]]:
    """A progress artifact for the length of the block: `progress-<stage>`, brought up to date every ten seconds.

    Yields a function to call with every line of the stage. A Prefect server that is away costs updates, no stage.
    """
    progress, done = _Progress(name), threading.Event()
    with suppress(httpx.HTTPError), fail_fast():
        key = f"progress-{re.sub(r'[^a-z0-9]+', '-', name.lower())}"
        made = create_progress_artifact(0, key, progress.text())
        progress.artifact = made if isinstance(made, UUID) else None
    thread = threading.Thread(target=copy_context().run, args=(_update, progress, done), daemon=True)
    thread.start()
    try:
        yield progress.on_line
        progress.percent = 100
    finally:
        done.set()
        thread.join(INTERVAL_S)


class _Progress:
    """How far a stage is, by the last line that it printed."""

    def __init__(self, name: str) -> None:
        self.artifact: UUID | None = None
        self.percent = 0
        self._name, self._line = name, ""
        self._begun = time.monotonic()

    def on_line(self, line: str) -> None:
        self._line = line
        if found := _PERCENT.findall(line):
            self.percent = min(int(found[-1]), 100)

    def text(self) -> str:
        return f"{self._name}, {time.monotonic() - self._begun:.0f} s: {self._line or 'starting'}"


def _update(progress: _Progress, done: threading.Event) -> None:
    ended = False
    while not ended:
        ended = done.wait(INTERVAL_S)
        with suppress(httpx.HTTPError), fail_fast():
            if progress.artifact is not None:
                update_progress_artifact(progress.artifact, progress.percent, progress.text())
