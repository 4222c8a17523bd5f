"""The server as a Starlette application: its routes, and the guard before them."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.serving.server.address import ServingLimits, is_foreign, names_this_machine
from components.serving.server.batches import Batcher, Metrics
from components.serving.server.messages import ApiError, EmbeddingRequest, EncodeResponse, read_request

_OPEN = ("/health", "/health/live", "/health/ready")
_ONE_MODEL = "/v1/models/{name:path}"
_SENTENCES = {404: "There is nothing here.", 405: "This route does not support this method."}


def make_app(
    batcher: Batcher,
    limits: ServingLimits,
    metrics: Metrics,
    tokens: Sequence[str] = (),
    problem: Callable[[], str] = str,
) -> Starlette:
    """The application; it starts and stops the batcher.

    Args:
        problem: the reason why the newest version is not served, empty if it is.
    """
    routes = _Routes(batcher, limits, metrics, problem)
    table = [
        Route("/v1/embeddings", routes.embeddings, methods=["POST"]),
        Route("/v1/models", routes.models),
        Route(_ONE_MODEL, routes.one_model),
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
        middleware=[Middleware(RequestGuard, tokens, metrics, {route.path for route in table}, _OPEN)],
        exception_handlers={ApiError: _refused, HTTPException: _not_found, Exception: _failed},
    )
    app.router.redirect_slashes = False
    return app


class _Routes:
    def __init__(self, batcher: Batcher, limits: ServingLimits, metrics: Metrics, problem: Callable[[], str]) -> None:
        self._batcher, self._limits, self._metrics, self._problem = batcher, limits, metrics, problem
        self._since = int(time.time())

    async def embeddings(self, request: Request) -> Response:
        parsed = read_request(await _body(request, self._limits.body), self._limits)
        answer = await self._answer(request, parsed)
        return answer.response(parsed.encoding_format)

    async def _answer(self, request: Request, parsed: EmbeddingRequest) -> EncodeResponse:
        vectors = self._batcher.submit(parsed)
        disconnected = asyncio.ensure_future(request.receive())
        disconnected.add_done_callback(lambda _: vectors.cancel())
        try:
            return await vectors
        except asyncio.CancelledError:
            if disconnected.done():
                raise ClientDisconnect from None
            raise
        finally:
            disconnected.cancel()

    async def models(self, _request: Request) -> Response:
        return _json({"object": "list", "data": self._models()})

    async def one_model(self, request: Request) -> Response:
        for model in self._models():
            if model["id"] == request.path_params["name"]:
                return _json(model)
        raise HTTPException(404)

    def _models(self) -> list[dict[str, object]]:
        names = frozenset[str]().union(*(one.names for one in self._batcher.all))
        return [
            {"id": name, "object": "model", "created": self._since, "owned_by": "cliptune"} for name in sorted(names)
        ]

    async def numbers(self, _request: Request) -> Response:
        return Response(generate_latest(self._metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def health(self, _request: Request) -> Response:
        """Whether the batcher works. The server listens after its model is loaded, so live and ready are the same."""
        (served, *others), alive = self._batcher.all, self._batcher.alive
        status = {
            "live": alive,
            "ready": alive,
            "model": served.id,
            "precision": served.precision,
            "image_tower_sha256": served.image_tower_sha256,
            "others": [one.id for one in others],
            "problem": self._problem() or None,
        }
        return _json(status, 200 if alive else 503)


async def _body(request: Request, most: int) -> bytes:
    """The body of a request; raises `ApiError` if it is longer than `most` bytes, without keeping the rest."""
    too_long = ApiError(413, f"The body has more than {most} bytes.", "body_too_long")
    # uvicorn has checked that it is a number.
    if int(request.headers.get("content-length", 0)) > most:
        raise too_long
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise too_long
    return bytes(body)


def _json(content: object, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _not_found(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = error.status_code
    return ApiError(status, _SENTENCES.get(status, "This request is not supported."), "not_found").response()


async def _failed(_request: Request, _error: Exception) -> Response:
    return ApiError(500, "The server failed to answer.", "internal_error").response()


class RequestGuard:
    """Refuses requests that lack a token or come from another site's page; counts all requests.

    Args:
        tokens: valid tokens; without any, no token is required, and only this machine's programs may ask.
        routes: paths that the metrics show; others are counted together.
        open_routes: paths that need no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[str],
        metrics: Metrics,
        routes: Collection[str],
        open_routes: Collection[str],
    ) -> None:
        self._app, self._metrics, self._routes, self._open = app, metrics, routes, open_routes
        self._tokens = [token.encode() for token in tokens]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, begun = 500, time.perf_counter()

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-content-type-options"] = "nosniff"
            await send(message)

        try:
            refusal = self._refusal(scope)
            await (self._app if refusal is None else refusal.response())(scope, receive, send_and_note)
        except ClientDisconnect:
            # In the metrics only: the client disconnected.
            status = 499
        finally:
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.requests.labels(route, str(status)).inc()
            if scope["method"] == "POST" and status == 200:
                self._metrics.seconds.observe(time.perf_counter() - begun)

    def _refusal(self, scope: Scope) -> ApiError | None:
        if scope["path"] in self._open:
            return None
        headers = Headers(scope=scope)
        # A page of another site knows no token.
        if not self._tokens and (is_foreign(headers) or not names_this_machine(headers.get("host", ""))):
            return ApiError(403, "Without a token only programs and pages of this machine may ask.", "forbidden")
        if self._tokens and not self._has_token(scope):
            return ApiError(401, "Send a valid token as 'Authorization: Bearer <token>'.", "invalid_api_key")
        return None

    def _has_token(self, scope: Scope) -> bool:
        """Whether a request has a valid token, compared in constant time."""
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, given = header.partition(b" ")
        equal = [hmac.compare_digest(given.strip(), token) for token in self._tokens]
        return scheme.lower() == b"bearer" and any(equal)
