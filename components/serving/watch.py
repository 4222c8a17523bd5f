"""Takes up a new version of a registered model while the old one answers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from components.serving.batches import Batcher
from components.serving.metrics import Metrics
from components.serving.served import Served
from components.tracking import reason_of

_LOG = logging.getLogger(__name__)
_LONGEST_WAIT_S = 300.0
"""Seconds after which a version that could not be loaded is tried again, at most."""


class Watch:
    """A thread that looks where an alias points, loads a new version and gives it to the batcher.

    Args:
        version: the version that an alias points at; raises where it cannot be asked.
        load: loads a version.
        batcher: serves the version that was loaded last.
        any_tower: whether versions with another image tower are taken too.
        every: seconds between looks.
    """

    def __init__(
        self,
        version: Callable[[], str | None],
        load: Callable[[str], Served],
        batcher: Batcher,
        metrics: Metrics,
        *,
        any_tower: bool,
        every: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._version, self._load, self._batcher, self._metrics = version, load, batcher, metrics
        self._any_tower, self._every, self._clock = any_tower, every, clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)
        self.problem = ""
        """Why the version that the alias points at does not answer, if it does not; anybody may read it."""
        self._seen, self._why = self._current(), ""
        """The version that was looked at last, and why it does not answer."""
        self._again_at, self._failures = float("inf"), 0

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; what is being loaded is not waited for."""
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.wait(self._every):
            self.look()

    def look(self) -> None:
        """Take up the version that the alias points at, if it is another; whatever fails, the old one goes on."""
        try:
            version = self._version()
        except Exception as error:
            self._tell("the registry does not answer", error)
            return
        if version is None:
            self._tell("the alias is gone")
            return
        if version == self._current():
            self._seen, self._why = version, ""
        elif version != self._seen or self._clock() >= self._again_at:
            self._failures = self._failures + 1 if version == self._seen else 0
            self._seen, self._again_at = version, float("inf")
            self._why = self._take(version)
        self._tell(self._why)

    def _take(self, version: str) -> str:
        """Have a version answer; returns why it does not, if it does not."""
        old = self._batcher.served
        try:
            new = self._load(version)
        except Exception as error:
            self._again_at = self._clock() + min(_LONGEST_WAIT_S, self._every * 2.0 ** min(self._failures, 20))
            self._metrics.failures.labels("failed").inc()
            why = f"version {version} cannot be loaded: {old.id} goes on"
            self._tell(why, error)
            return why
        if new.image_tower_sha256 != old.image_tower_sha256 and not self._any_tower:
            self._metrics.failures.labels("image_tower").inc()
            return (
                f"{new.id} has another image tower, whose vectors an index of the old one does not fit: {old.id} goes "
                "on; embed the images again and start the server anew"
            )
        self._batcher.served = new
        self._metrics.serves(new)
        _LOG.info("%s answers instead of %s", new.id, old.id)
        return ""

    def _current(self) -> str:
        return self._batcher.served.id.rpartition("/")[2]

    def _tell(self, problem: str, error: Exception | None = None) -> None:
        """Say what is wrong, once however long it lasts, and that it is over."""
        if problem == self.problem:
            return
        self.problem = problem
        self._metrics.refused.set(bool(problem))
        if problem:
            _LOG.warning("%s%s", problem, f" ({reason_of(error)})" if error else "")
        else:
            _LOG.info("%s is what the alias points at", self._batcher.served.id)
