"""A stage's progress bar on its run's page, which also shows that the stage is alive."""

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

from flows.impatience import asked_once

BEAT = 10.0
"""Seconds between two signs of life."""
_PERCENT = re.compile(r"\b(\d{1,3})%")


@contextmanager
def pulse(name: str) -> Iterator[Callable[[str], None]]:
    """A progress artifact for the length of the block: `progress-<stage>`, brought up to date every ten seconds.

    Yields what is to be called with every line of the stage. A Prefect server that is away costs beats, no stage.
    """
    said, done = _Said(name), threading.Event()
    with suppress(httpx.HTTPError), asked_once():
        key = f"progress-{re.sub(r'[^a-z0-9]+', '-', name.lower())}"
        made = create_progress_artifact(0, key, said.text())
        said.artifact = made if isinstance(made, UUID) else None
    thread = threading.Thread(target=copy_context().run, args=(_beat, said, done), daemon=True)
    thread.start()
    try:
        yield said.hear
        said.percent = 100
    finally:
        done.set()
        thread.join(BEAT)


class _Said:
    """What a stage said last."""

    def __init__(self, name: str) -> None:
        self.artifact: UUID | None = None
        self.percent = 0
        self._name, self._line = name, ""
        self._begun = time.monotonic()

    def hear(self, line: str) -> None:
        self._line = line
        if found := _PERCENT.findall(line):
            self.percent = min(int(found[-1]), 100)

    def text(self) -> str:
        return f"{self._name}, {time.monotonic() - self._begun:.0f} s: {self._line or 'starting'}"


def _beat(said: _Said, done: threading.Event) -> None:
    ended = False
    while not ended:
        ended = done.wait(BEAT)
        with suppress(httpx.HTTPError), asked_once():
            if said.artifact is not None:
                update_progress_artifact(said.artifact, said.percent, said.text())
