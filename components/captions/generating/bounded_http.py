"""HTTP clients for addresses in a user's settings: they follow no redirect, and read a limited number of bytes."""

from __future__ import annotations

from typing import Any

import httpx2

MOST_BYTES = 8 << 20
"""Maximum size of a response's body after decompression."""


class OversizedError(Exception):
    """The body of a response has more than `MOST_BYTES`."""


class _Body:
    """Joins the pieces of a body; raises `OversizedError` at the first piece beyond the limit."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._left = MOST_BYTES

    def add(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise OversizedError(f"the answer has more than {MOST_BYTES >> 20} MB")
        self._pieces.append(piece)

    def response(self, response: httpx2.Response) -> httpx2.Response:
        """`response` with this body, which is not compressed."""
        encoded = {"content-encoding", "content-length", "transfer-encoding"}
        headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in encoded]
        content = b"".join(self._pieces)
        return httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)


class BoundedClient(httpx2.Client):
    """A client whose responses are read whole; `url` decides whether a proxy may be used."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(trust_env=not is_local(url), follow_redirects=False, **options)

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The response with its whole body; raises `OversizedError`, and as `httpx2.Client.send`."""
        response, body = super().send(request, **{**options, "stream": True, "follow_redirects": False}), _Body()
        try:
            for piece in response.iter_bytes():
                body.add(piece)
        finally:
            response.close()
        return body.response(response)


class BoundedAsyncClient(httpx2.AsyncClient):
    """`BoundedClient` for coroutines."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(trust_env=not is_local(url), follow_redirects=False, **options)

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """The response with its whole body; raises `OversizedError`, and as `httpx2.AsyncClient.send`."""
        options |= {"stream": True, "follow_redirects": False}
        response, body = await super().send(request, **options), _Body()
        try:
            async for piece in response.aiter_bytes():
                body.add(piece)
        finally:
            await response.aclose()
        return body.response(response)


def is_local(url: str) -> bool:
    """Whether an address is on this machine, where no proxy leads."""
    return url.startswith(("http://127.0.0.1:", "http://localhost:"))


def redirect_of(response: httpx2.Response) -> str | None:
    """The address, without a query or a password, that a response redirects to; None if it does not redirect."""
    if not response.is_redirect:
        return None
    try:
        target = response.request.url.join(response.headers.get("location", ""))
        return str(target.copy_with(username="", password="", query=None, fragment=None))[:200]
    except (httpx2.InvalidURL, ValueError):
        return "another address"
