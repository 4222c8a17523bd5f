"""Runs the server until SIGTERM or SIGINT, with time limits for slow connections."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from components.core.system.errors import InputError
from components.core.system.traces import exported_spans
from components.encoders.adapter.precision import Precision
from components.serving.address import ServingLimits
from components.serving.app import make_app
from components.serving.batches import Batcher
from components.serving.metrics import Metrics
from components.serving.served import Alias, Served, load_first, load_version
from components.serving.watch import Watch

_LOG = logging.getLogger(__name__)


def serve(
    encoders: Sequence[str],
    place: socket.socket,
    tokens: list[str],
    limits: ServingLimits,
    *,
    any_tower: bool,
    every: float,
    device: str = "auto",
    precision: Precision = "fp32",
    excludes: bool = False,
    known: Sequence[str] = (),
) -> None:
    """Load encoders and answer until SIGTERM or SIGINT.

    Args:
        encoders: see `cliptune evaluate --encoder`; of an alias the current version is served. The first answers
            requests without a model; all have the same image tower, unless `any_tower`.
        excludes: whether texts such as `a street -people` exclude something.
        known: texts that queries are compared with for `/metrics`.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for library in ("mlflow", "alembic", "uvicorn", "httpx"):
        logging.getLogger(library).setLevel(logging.WARNING)
    metrics = Metrics()

    def prepared(loaded: Served) -> Served:
        return replace(loaded, excludes=excludes).knowing(known)

    first, *others = (prepared(load_first(name, limits.cache, precision, device)) for name in encoders)
    for other in others:
        if other.image_tower_sha256 != first.image_tower_sha256 and not any_tower:
            raise InputError(f"{other.id} has another image tower than {first.id}: their vectors are of two indexes")
    metrics.serves(first)
    batcher, watches = Batcher(first, limits, metrics, others), list[Watch]()
    with ExitStack() as stack:
        stack.enter_context(exported_spans())
        for number, name in enumerate(encoders):
            if (alias := Alias.of(name)) is not None:
                load = partial(_load, alias, limits, precision, device, prepared)
                place_of = number - 1 if number else None
                watch = Watch(
                    name, alias.version, load, batcher, metrics, any_tower=any_tower, every=every, other=place_of
                )
                watch.start()
                stack.callback(watch.stop)
                watches.append(watch)
        app = make_app(batcher, limits, metrics, tokens, lambda: _problems(watches))
        host, port = place.getsockname()[:2]
        names, address = ", ".join(one.id for one in (first, *others)), f"[{host}]" if ":" in host else host
        _LOG.info("%s answers on http://%s:%s", names, address, port)
        stack.callback(_LOG.info, "stopped")
        # uvicorn re-raises the signal that stopped it, which by default ends the process with an error.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        uvicorn.Server(uvicorn_config(app, limits)).run(sockets=[place])


def _problems(watches: Sequence[Watch]) -> str:
    return "; ".join(watch.problem for watch in watches if watch.problem)


def _load(
    alias: Alias,
    limits: ServingLimits,
    precision: Precision,
    device: str,
    prepared: Callable[[Served], Served],
    version: str,
) -> Served:
    return prepared(load_version(alias, version, limits.cache, precision, device))


def uvicorn_config(app: Starlette, limits: ServingLimits) -> uvicorn.Config:
    # Connections may be idle for longer than the 60 seconds for which proxies reuse theirs.
    return uvicorn.Config(
        app, http=timed(limits.headers_s), ws="none", lifespan="on", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=65,
        timeout_graceful_shutdown=int(limits.stop_s),
    )  # fmt: skip


def timed(seconds: float) -> type[H11Protocol]:
    """uvicorn's protocol with a time limit for a client to send a request's head and to receive a response.

    uvicorn itself only limits the time between two requests, until the first byte of the second.
    """

    class TimedProtocol(H11Protocol):
        _head: asyncio.TimerHandle | None = None
        _stuck: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._time_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._time_head()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            for timer in (self._head, self._stuck):
                if timer is not None:
                    timer.cancel()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stuck = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stuck is not None:
                self._stuck.cancel()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._abort_if_closing()

        def timeout_keep_alive_handler(self) -> None:
            super().timeout_keep_alive_handler()
            self._abort_if_closing()

        def _abort_if_closing(self) -> None:
            """A transport closes after all data is sent, which a client can delay forever."""
            if self.transport.is_closing():
                self.loop.call_later(seconds, self.transport.abort)

        def _time_head(self) -> None:
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self._head is None:
                self._head = self.loop.call_later(seconds, self.transport.abort)
            elif not idle and self._head is not None:
                self._head.cancel()
                self._head = None

    return TimedProtocol
