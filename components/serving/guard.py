"""ASGI middleware around all routes: tokens, size and time limits of requests, and request metrics."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Collection, Sequence
from contextlib import suppress

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.serving.address import ServingLimits, is_foreign, names_this_machine
from components.serving.messages import ApiError
from components.serving.metrics import Metrics

_LINGER_S = 2.0
"""Seconds in which the rest of a refused request is discarded, so that a client that still sends sees the response."""


class RequestGuard:
    """Refuses requests that lack a token, are too many, too long or too slow; counts all requests.

    Args:
        tokens: valid tokens; without any, no token is required, and only this machine's programs may ask.
        routes: paths that the metrics show; others are counted together.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[str],
        limits: ServingLimits,
        metrics: Metrics,
        routes: Collection[str],
        open_routes: Collection[str],
    ) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._tokens = [token.encode() for token in tokens]
        self._routes, self._open = routes, open_routes
        self._active = 0

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

        self._active += 1
        try:
            await self._handle(scope, receive, send_and_note)
        except ClientDisconnect:
            # In the metrics only: the client disconnected.
            status = 499
        finally:
            self._active -= 1
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.requests.labels(route, str(status)).inc()
            if scope["method"] == "POST" and status == 200:
                self._metrics.seconds.observe(time.perf_counter() - begun)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self._check(scope)
            scope.setdefault("state", {})["body"] = await _read_body(scope, receive, self._limits)
        except ApiError as error:
            if error.close:
                await _respond_and_close(error.response(), scope, receive, send)
            else:
                await error.response()(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        if scope["path"] in self._open:
            return
        if self._active > self._limits.requests:
            raise ApiError(429, "The server has too many requests: try again later.", "overloaded", retry_after=1)
        headers = Headers(scope=scope)
        # A page of another site knows no token.
        if not self._tokens and (is_foreign(headers) or not names_this_machine(headers.get("host", ""))):
            raise ApiError(403, "Without a token only programs and pages of this machine may ask.", "forbidden")
        if self._tokens and not self._has_token(scope):
            raise ApiError(401, "Send a valid token as 'Authorization: Bearer <token>'.", "invalid_api_key")

    def _has_token(self, scope: Scope) -> bool:
        """Whether a request has a valid token, compared in constant time."""
        header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, given = header.partition(b" ")
        equal = [hmac.compare_digest(given.strip(), token) for token in self._tokens]
        return scheme.lower() == b"bearer" and any(equal)


async def _read_body(scope: Scope, receive: Receive, limits: ServingLimits) -> bytes:
    """The body of a request.

    Raises:
        ApiError: it is too long or too slow; its rest is not read.
        ClientDisconnect: the client disconnected.
    """
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    # uvicorn has checked that it is a number.
    if int(declared) > limits.body:
        raise _too_long(limits)
    parts, size = list[bytes](), 0
    try:
        async with asyncio.timeout(limits.body_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                part = message.get("body", b"")
                size += len(part)
                if size > limits.body:
                    raise _too_long(limits)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        reason = f"The body was not received within {limits.body_s:g} seconds."
        raise ApiError(408, reason, "timeout", close=True) from None


def _too_long(limits: ServingLimits) -> ApiError:
    return ApiError(413, f"The body has more than {limits.body} bytes.", "body_too_long", close=True)


async def _respond_and_close(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a response, and keep the connection until the client has received it or `_LINGER_S` is over."""

    async def send_open(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "more_body": True}
        await send(message)

    await response(scope, receive, send_open)
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_S):
            while (message := await receive())["type"] != "http.disconnect":
                if not message.get("more_body", False):
                    break
    await send({"type": "http.response.body", "body": b""})
