"""What every request passes before it is routed: who asks, how often, how much, and the count of what came of it."""

from __future__ import annotations

import hmac
import math
import time
from collections.abc import Collection, Sequence

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.serving.body import answer_and_close, read_body
from components.serving.errors import Refusal
from components.serving.limits import Limits
from components.serving.metrics import Metrics
from components.serving.rates import Rates

_LEFT = 499
"""The status under which requests are counted whose client did not wait."""


class Guard:
    """Refuses requests without a token, too many, too long or too slow ones; counts all.

    Args:
        app: gets the rest, with the body in its state.
        tokens: whoever sends one of them is a client; without any everybody is.
        routes: paths that are counted under their names.
        open_routes: paths that need no token and are not counted against a client.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[str],
        limits: Limits,
        metrics: Metrics,
        routes: Collection[str],
        open_routes: Collection[str],
    ) -> None:
        self._app, self._limits, self._metrics = app, limits, metrics
        self._tokens = [token.encode() for token in tokens]
        self._routes, self._open = routes, open_routes
        self._rates = Rates(limits.rate, limits.burst)
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, begun = 500, time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-content-type-options"] = "nosniff"
            await send(message)

        self._active += 1
        try:
            await self._pass(scope, receive, noted)
        except ClientDisconnect:
            status = _LEFT
        finally:
            self._active -= 1
            route = scope["path"] if scope["path"] in self._routes else "other"
            self._metrics.requests.labels(route, str(status)).inc()
            if scope["method"] == "POST" and status == 200:
                self._metrics.seconds.observe(time.perf_counter() - begun)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal, body = self._refusal(scope), b""
        if refusal is None:
            try:
                body = await read_body(scope, receive, self._limits)
            except Refusal as unread:
                refusal = unread
        if refusal is None:
            scope.setdefault("state", {})["body"] = body
            await self._app(scope, receive, send)
        elif refusal.close:
            await answer_and_close(refusal.response(), scope, receive, send)
        else:
            await refusal.response()(scope, receive, send)

    def _refusal(self, scope: Scope) -> Refusal | None:
        if scope["path"] in self._open:
            return None
        if self._active > self._limits.requests:
            return Refusal(429, "The server has too many requests: try again.", "overloaded", retry_after=1)
        number = self._token(scope)
        client = f"token {number}" if number is not None else str((scope.get("client") or ("unknown",))[0])
        wait = self._rates.wait(client)
        if wait:
            told = f"You may send {self._limits.rate:g} requests a second: wait."
            return Refusal(429, told, "rate_limit_exceeded", retry_after=math.ceil(wait))
        if self._tokens and number is None:
            return Refusal(401, "Send a valid token as 'Authorization: Bearer <token>'.", "invalid_api_key")
        return None

    def _token(self, scope: Scope) -> int | None:
        """Which of the tokens a request carries, compared in a time that tells nothing of them."""
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        scheme, _, given = sent.partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        equal = [hmac.compare_digest(given.strip(), token) for token in self._tokens]
        return equal.index(True) if any(equal) else None
