"""ASGI middleware around all routes: tokens, requests of other sites, and request metrics."""

from __future__ import annotations

import hmac
import time
from collections.abc import Collection, Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from components.serving.server.address import is_foreign, names_this_machine
from components.serving.server.messages import ApiError
from components.serving.server.metrics import Metrics


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
