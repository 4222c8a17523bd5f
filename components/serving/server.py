"""Runs the server until it is told to stop."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

import uvicorn
from starlette.applications import Starlette

from components.serving.alias import Alias
from components.serving.app import make_app
from components.serving.batches import Batcher
from components.serving.limits import Limits
from components.serving.metrics import Metrics
from components.serving.protocol import timed
from components.serving.served import load_first, load_version
from components.serving.watch import Watch

_LOG = logging.getLogger(__name__)
_KEEP_ALIVE_S = 65
"""Seconds that a connection may rest; proxies reuse theirs for 60, and must not meet one that is just being closed."""


def serve(
    encoder: str, place: socket.socket, tokens: list[str], limits: Limits, *, any_tower: bool, every: float
) -> None:
    """Load an encoder and answer until SIGTERM or SIGINT.

    Args:
        encoder: see `cliptune evaluate --encoder`; where it is an alias, what the alias points at is served.
        place: where to listen, bound already.
        any_tower: whether a new version may have another image tower.
        every: seconds between looks at the alias.

    Raises:
        InputError: the encoder cannot be loaded.
    """
    _log_to_stderr()
    metrics = Metrics()
    served = load_first(encoder, limits.cache)
    metrics.serves(served)
    batcher = Batcher(served, limits, metrics)
    alias = Alias.of(encoder)
    with ExitStack() as stack:
        watch = None
        if alias is not None:
            load = partial(load_version, alias, cache=limits.cache)
            watch = Watch(alias.version, load, batcher, metrics, any_tower=any_tower, every=every)
            watch.start()
            stack.callback(watch.stop)
        app = make_app(batcher, limits, metrics, tokens, lambda: watch.problem if watch else "")
        host, port = place.getsockname()[:2]
        _LOG.info("%s answers on http://%s:%s", served.id, f"[{host}]" if ":" in host else host, port)
        stack.callback(_LOG.info, "stopped")
        # uvicorn raises the signal that stopped it once more; the default would make an orderly stop a failure.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        uvicorn.Server(uvicorn_config(app, limits, os.environ)).run(sockets=[place])


def uvicorn_config(app: Starlette, limits: Limits, environment: Mapping[str, str]) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        http=timed(limits.headers_s),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Who may say that a request comes from elsewhere: uvicorn's default would believe everybody on this machine.
        proxy_headers="FORWARDED_ALLOW_IPS" in environment,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(limits.stop_s),
    )


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for chatty in ("mlflow", "alembic", "uvicorn", "httpx"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
