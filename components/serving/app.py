"""The routes of the server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import orjson
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from components.serving.batches import Batcher
from components.serving.errors import Refusal
from components.serving.guard import Guard
from components.serving.limits import Limits
from components.serving.metrics import Metrics
from components.serving.question import read_question

_OPEN = ("/health", "/health/live", "/health/ready")
_SENTENCES = {404: "There is nothing here.", 405: "This route does not take this method."}


def make_app(
    batcher: Batcher,
    limits: Limits,
    metrics: Metrics,
    tokens: Sequence[str] = (),
    problem: Callable[[], str] = str,
) -> Starlette:
    """The application; it starts the batcher with itself and stops it at its end.

    Args:
        tokens: what clients must send one of; none are needed if there are none.
        problem: why the newest version does not answer, empty if it does.
    """
    routes = _Routes(batcher, limits, metrics, problem)
    table = [
        Route("/v1/embeddings", routes.embeddings, methods=["POST"]),
        Route("/v1/models", routes.models),
        Route("/metrics", routes.numbers),
        *(Route(path, routes.health) for path in _OPEN),
    ]

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        batcher.start()
        yield
        await asyncio.to_thread(batcher.stop)

    app = Starlette(
        routes=table,
        lifespan=lifespan,
        middleware=[Middleware(Guard, tokens, limits, metrics, {route.path for route in table}, _OPEN)],
        exception_handlers={Refusal: _refused, HTTPException: _not_found, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return app


class _Routes:
    """What is behind the paths."""

    def __init__(self, batcher: Batcher, limits: Limits, metrics: Metrics, problem: Callable[[], str]) -> None:
        self._batcher, self._limits, self._metrics, self._problem = batcher, limits, metrics, problem
        self._since = int(time.time())

    async def embeddings(self, request: Request) -> Response:
        """Vectors of texts."""
        question = read_question(request.state.body, self._limits)
        answer = self._batcher.submit(question)
        left = asyncio.ensure_future(request.receive())
        left.add_done_callback(lambda _: answer.cancel())
        try:
            return (await answer).response(question.encoding_format)
        except asyncio.CancelledError:
            if left.done():
                raise ClientDisconnect from None
            raise
        finally:
            left.cancel()

    async def models(self, _request: Request) -> Response:
        """The names that clients may give as `model`."""
        names = sorted(self._batcher.served.names)
        models = [{"id": name, "object": "model", "created": self._since, "owned_by": "cliptune"} for name in names]
        return _json({"object": "list", "data": models})

    async def numbers(self, _request: Request) -> Response:
        """What Prometheus reads."""
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE_LATEST})

    async def health(self, _request: Request) -> Response:
        """Whether it computes. It listens only once its model is loaded, so what is alive is ready."""
        served, alive = self._batcher.served, self._batcher.alive
        told = {
            "live": alive,
            "ready": alive,
            "model": served.id,
            "image_tower_sha256": served.image_tower_sha256,
            "problem": self._problem() or None,
        }
        return _json(told, 200 if alive else 503)


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


async def _not_found(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    return Refusal(status, _SENTENCES.get(status, "This cannot be answered."), "not_found").response()


async def _failed(_request: Request, _error: Exception) -> Response:
    return Refusal(500, "The server failed to answer.", "internal_error").response()
