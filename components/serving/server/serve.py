"""Runs the server until SIGTERM or SIGINT, and loads new versions of a registered model meanwhile."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial

import uvicorn
from starlette.applications import Starlette

from components.core.system.errors import InputError
from components.core.tracking import reason_of
from components.serving.server.address import ServingLimits
from components.serving.server.app import make_app
from components.serving.server.batches import Batcher, Metrics
from components.serving.server.served import Alias, Loading, Served

_LOG = logging.getLogger(__name__)


def serve(
    encoders: Sequence[str],
    place: socket.socket,
    tokens: list[str],
    limits: ServingLimits,
    loading: Loading,
    *,
    any_tower: bool,
    every: float,
) -> None:
    """Load one encoder, or champion and challenger, and answer until SIGTERM or SIGINT.

    Args:
        encoders: see `cliptune evaluate --encoder`; of an alias the current version is served. The first answers
            requests without a model; both have the same image tower, unless `any_tower`.
        every: seconds between two checks of an alias.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for library in ("mlflow", "alembic", "uvicorn", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)
    metrics = Metrics()
    first, *others = (loading.first(name) for name in encoders)
    for other in others:
        if other.image_tower_sha256 != first.image_tower_sha256 and not any_tower:
            raise InputError(f"{other.id} has another image tower than {first.id}: their vectors are of two indexes")
    metrics.serves(first)
    batcher, watches = Batcher(first, limits, metrics, *others), list[Watch]()
    with ExitStack() as stack:
        for number, name in enumerate(encoders):
            if (alias := Alias.of(name)) is not None:
                load = partial(loading.version, alias)
                watch = Watch(
                    name, alias.version, load, batcher, metrics,
                    any_tower=any_tower, every=every, is_challenger=number == 1,
                )  # fmt: skip
                watch.start()
                stack.callback(watch.stop)
                watches.append(watch)
        app = make_app(
            batcher, limits, metrics, tokens, lambda: "; ".join(one.problem for one in watches if one.problem)
        )
        host, port = place.getsockname()[:2]
        names, address = ", ".join(one.id for one in batcher.all), f"[{host}]" if ":" in host else host
        _LOG.info("%s answers on http://%s:%s", names, address, port)
        stack.callback(_LOG.info, "stopped")
        # uvicorn re-raises the signal that stopped it, which by default ends the process with an error.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        uvicorn.Server(uvicorn_config(app, limits)).run(sockets=[place])


def uvicorn_config(app: Starlette, limits: ServingLimits) -> uvicorn.Config:
    # Connections may be idle for longer than the 60 seconds for which proxies reuse theirs. uvicorn counts the
    # connection of the request itself.
    return uvicorn.Config(
        app, http="h11", ws="none", lifespan="on", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=65,
        limit_concurrency=limits.connections + 1, timeout_graceful_shutdown=limits.stop_s,
    )  # fmt: skip


class Watch:
    """A thread that checks an alias, loads a new version and passes it to the batcher.

    Args:
        alias: its name in metrics, such as `text-encoder@champion`.
        version: returns the version of the alias; raises if the registry is unavailable.
        is_challenger: whether it is the batcher's challenger that is replaced.
    """

    def __init__(
        self,
        alias: str,
        version: Callable[[], str | None],
        load: Callable[[str], Served],
        batcher: Batcher,
        metrics: Metrics,
        *,
        any_tower: bool,
        every: float,
        clock: Callable[[], float] = time.monotonic,
        is_challenger: bool = False,
    ) -> None:
        self._is_challenger, self._refused = is_challenger, metrics.refused.labels(alias)
        self._version, self._load, self._batcher, self._metrics = version, load, batcher, metrics
        self._any_tower, self._every, self._clock = any_tower, every, clock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="watch", daemon=True)
        self.problem = ""
        """The reason why the version of the alias is not served, empty if it is; shown to all clients."""
        self._seen, self._reason = self._current(), ""
        """The version of the last check, and the reason why it is not served."""
        self._retry_at, self._failures = float("inf"), 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop checking, without waiting for a version that is being loaded."""
        self._stop.set()

    def _work(self) -> None:
        while not self._stop.wait(self._every):
            self.look()

    def look(self) -> None:
        """Serve the version of the alias if it has changed; after any failure the old version remains."""
        try:
            version = self._version()
        except Exception as error:
            self._report("the registry does not answer", error)
            return
        if version is None:
            self._report("the alias is gone")
            return
        if version == self._current():
            self._seen, self._reason = version, ""
        elif version != self._seen or self._clock() >= self._retry_at:
            self._failures = self._failures + 1 if version == self._seen else 0
            self._seen, self._retry_at = version, float("inf")
            self._reason = self._switch(version)
        self._report(self._reason)

    def _switch(self, version: str) -> str:
        """Serve a version; returns the reason if that failed."""
        old = self._served
        try:
            new = self._load(version)
        except Exception as error:
            self._retry_at = self._clock() + min(300.0, self._every * 2.0 ** min(self._failures, 20))
            self._metrics.failures.labels("failed").inc()
            reason = f"version {version} cannot be loaded: {old.id} remains"
            self._report(reason, error)
            return reason
        if new.image_tower_sha256 != old.image_tower_sha256 and not self._any_tower:
            self._metrics.failures.labels("image_tower").inc()
            return (
                f"{new.id} has another image tower, so its vectors do not fit an index of {old.id}, which remains: "
                "embed the images again and restart the server"
            )
        if self._is_challenger:
            self._batcher.challenger = new
        else:
            self._batcher.served = new
            self._metrics.serves(new)
        _LOG.info("%s replaces %s", new.id, old.id)
        return ""

    @property
    def _served(self) -> Served:
        return self._batcher.all[self._is_challenger]

    def _current(self) -> str:
        return self._served.id.rpartition("/")[2]

    def _report(self, problem: str, error: Exception | None = None) -> None:
        """Log a problem once when it begins, and once when it ends."""
        if problem == self.problem:
            return
        self.problem = problem
        self._refused.set(bool(problem))
        if problem:
            _LOG.warning("%s%s", problem, f" ({reason_of(error)})" if error else "")
        else:
            _LOG.info("%s is the version of the alias", self._served.id)
