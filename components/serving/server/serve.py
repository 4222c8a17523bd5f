"""Runs the server until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import uvicorn
from starlette.applications import Starlette

from components.core.system.errors import InputError
from components.core.system.traces import exported_spans
from components.serving.server.address import ServingLimits
from components.serving.server.app import make_app
from components.serving.server.batches import Batcher
from components.serving.server.metrics import Metrics
from components.serving.server.served import Alias, Loading
from components.serving.server.watch import Watch

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
        stack.enter_context(exported_spans())
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
        app = make_app(batcher, limits, metrics, tokens, lambda: _problems(watches))
        host, port = place.getsockname()[:2]
        names, address = ", ".join(one.id for one in batcher.all), f"[{host}]" if ":" in host else host
        _LOG.info("%s answers on http://%s:%s", names, address, port)
        stack.callback(_LOG.info, "stopped")
        # uvicorn re-raises the signal that stopped it, which by default ends the process with an error.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        uvicorn.Server(uvicorn_config(app, limits)).run(sockets=[place])


def _problems(watches: Sequence[Watch]) -> str:
    return "; ".join(watch.problem for watch in watches if watch.problem)


def uvicorn_config(app: Starlette, limits: ServingLimits) -> uvicorn.Config:
    # Connections may be idle for longer than the 60 seconds for which proxies reuse theirs. uvicorn counts the
    # connection of the request itself.
    return uvicorn.Config(
        app, http="h11", ws="none", lifespan="on", log_config=None, access_log=False,
        server_header=False, proxy_headers=False, timeout_keep_alive=65,
        limit_concurrency=limits.connections + 1, timeout_graceful_shutdown=limits.stop_s,
    )  # fmt: skip
