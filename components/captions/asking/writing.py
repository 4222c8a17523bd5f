"""Replies on their way into the store: a thread commits whatever has arrived, while the engine answers on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, Queue
from threading import Thread
from types import TracebackType
from typing import Protocol, Self

from components.captions.request import Reply

WAITING = 2
"""Batches that may wait while others are stored: enough to hide a commit, and little to lose with the process."""


class Keeps(Protocol):
    """The part of the store that is written to."""

    def add(self, replies: Sequence[Reply]) -> object:
        """Keep answers and failures, all or none."""


class Writer:
    """Stores batches of replies in the order in which they come, several in one transaction where they wait.

    As a context manager; leaving it waits until everything is stored, whatever ended the block.
    """

    def __init__(self, store: Keeps, stored: Callable[[Sequence[Reply]], object]) -> None:
        """Prepare; `stored` is called in the writing thread with replies that are kept."""
        self._store, self._stored = store, stored
        self._batches: Queue[Sequence[Reply] | None] = Queue(WAITING)
        self._fault: Exception | None = None
        self._thread = Thread(target=self._write, name="store", daemon=True)

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def put(self, replies: Sequence[Reply]) -> None:
        """Have replies stored soon.

        Raises:
            InputError: earlier replies could not be stored.
        """
        self._check()
        self._batches.put(replies)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last transaction; raises what it failed with, unless the block has failed itself."""
        self._batches.put(None)
        self._thread.join()
        if error is None:
            self._check()

    def _check(self) -> None:
        if self._fault is not None:
            raise self._fault

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            replies, ended = list(batch), False
            # Never more than may wait: an engine that answers at once would make one transaction of everything.
            for _ in range(WAITING):
                try:
                    more = self._batches.get_nowait()
                except Empty:
                    break
                if more is None:
                    ended = True
                    break
                replies += more
            self._keep(replies)
            if ended:
                return

    def _keep(self, replies: Sequence[Reply]) -> None:
        """After a fault nothing more is tried, and whoever waits to hand over more is let go on to hear of it."""
        if self._fault is not None:
            return
        try:
            self._store.add(replies)
            self._stored(replies)
        except Exception as fault:
            self._fault = fault
