"""Reads a request's body within its limits, and ends connections whose rest nobody wants."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from components.serving.errors import Refusal
from components.serving.limits import Limits

_LINGER_S = 2.0
"""Seconds in which the rest of a refused request is thrown away: a client that sends would not see the answer else."""


async def read_body(scope: Scope, receive: Receive, limits: Limits) -> bytes:
    """The body of a request.

    Raises:
        Refusal: it is too long, or too slow; then its rest is still to come.
        ClientDisconnect: the client left.
    """
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    # The server has checked that it is a number.
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
        told = f"The body did not come within {limits.body_s:g} seconds."
        raise Refusal(408, told, "timeout", close=True) from None


def _too_long(limits: Limits) -> Refusal:
    return Refusal(413, f"The body has more than {limits.body} bytes.", "body_too_long", close=True)


async def answer_and_close(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send an answer, and keep the connection until the client has taken it or `_LINGER_S` is over."""

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
