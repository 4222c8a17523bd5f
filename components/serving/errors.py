"""Refusals in the shape of OpenAI's errors."""

from __future__ import annotations

import orjson
from starlette.responses import Response

_TYPES = {429: "rate_limit_error", 500: "server_error", 503: "server_error"}


class Refusal(Exception):
    """A request is not answered, and why.

    Args:
        status: of HTTP.
        message: one sentence for the client; says nothing of this machine.
        code: what programs tell refusals apart by.
        param: the key of the request that it is about.
        retry_after: seconds after which the same request may pass.
        close: whether the connection must end, because the rest of the request is not read.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        param: str | None = None,
        *,
        retry_after: int | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.code, self.param = status, message, code, param
        self.retry_after, self.close = retry_after, close

    def response(self) -> Response:
        """The refusal as an answer."""
        error = {
            "message": self.message,
            "type": _TYPES.get(self.status, "invalid_request_error"),
            "param": self.param,
            "code": self.code,
        }
        headers = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        if self.close:
            headers["connection"] = "close"
        return Response(orjson.dumps({"error": error}), self.status, headers, "application/json")
