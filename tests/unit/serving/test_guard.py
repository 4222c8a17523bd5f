"""Tokens, and limits on the number, size and duration of requests, partly over real sockets."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPConnection

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from components.serving.address import ServingLimits
from tests.support.serving import Stub, live, wait_until

TOKEN, OTHER = "one-token-of-many", "another-good-token"
BODY = {"input": "a"}


def test_every_route_but_health_requires_a_token(app_of: Callable[..., Starlette]) -> None:
    with TestClient(app_of(tokens=[TOKEN, OTHER])) as client:
        for path in ("/v1/models", "/metrics", "/nothing", "/v1/embeddings"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == 200
        for token in (TOKEN, OTHER):
            headers = {"authorization": f"Bearer {token}"}
            assert client.post("/v1/embeddings", json=BODY, headers=headers).status_code == 200


def test_wrong_tokens(app_of: Callable[..., Starlette]) -> None:
    client = TestClient(app_of(tokens=[TOKEN]))
    texts = ("Bearer ", "Bearer", "", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x",
             f"Bearer {TOKEN} {TOKEN}", f"Bearer {TOKEN.upper()}", f"Bearer {'x' * 10_000}")  # fmt: skip
    for header in (*(text.encode() for text in texts), b"Bearer \xff\xfe\xe9"):
        answer = client.post("/v1/embeddings", json=BODY, headers={b"authorization": header})
        assert (answer.status_code, answer.json()["error"]["type"]) == (401, "invalid_request_error"), header


def test_more_requests_than_can_be_held_are_refused(app_of: Callable[..., Starlette], stub: Stub) -> None:
    limits = ServingLimits(requests=3)

    async def statuses(port: int) -> list[int]:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            requests = [asyncio.create_task(client.post("/v1/embeddings", json=BODY)) for _ in range(10)]
            while sum(request.done() for request in requests) < 7:
                await asyncio.sleep(0.01)
            assert (await client.get("/health")).status_code == 200
            stub.go.set()
            return sorted(answer.status_code for answer in await asyncio.gather(*requests))

    stub.go.clear()
    with live(app_of(limits), limits) as port:
        assert asyncio.run(statuses(port)) == [200] * 3 + [429] * 7


LIMITS = ServingLimits(body=10_000, body_s=0.5, headers_s=5)
HUNDRED_MB = 100_000_000
HALF = b'POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"input"'


@pytest.fixture
def port(app_of: Callable[..., Starlette]) -> Iterator[int]:
    with live(app_of(LIMITS), LIMITS) as found:
        yield found


def _zeros() -> Iterator[bytes]:
    for _ in range(HUNDRED_MB // 100_000):
        yield b"0" * 100_000


def _read(connection: socket.socket) -> bytes:
    connection.settimeout(20)
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_a_hundred_megabytes(port: int) -> None:
    for headers in ({"content-length": str(HUNDRED_MB)}, {}):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/embeddings", content=_zeros(), headers=headers, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_long")
        assert answer.headers["connection"] == "close"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
    # A client that sends all before it reads sees the refusal too.
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/v1/embeddings", bytes(30_000_000))
    assert connection.getresponse().status == 413
    connection.close()


def test_a_body_that_stops_half_way(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(HALF)
        response = _read(connection)
    assert response.startswith(b"HTTP/1.1 408")
    assert b"was not received within 0.5 seconds" in response


def test_a_body_without_end_is_cut_off_without_a_token(app_of: Callable[..., Starlette]) -> None:
    with live(app_of(LIMITS, [TOKEN]), LIMITS) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        ended = time.monotonic() + 20
        with suppress(OSError):
            while time.monotonic() < ended:
                connection.sendall(b"1\r\nx\r\n")
                time.sleep(0.05)
        assert time.monotonic() < ended
        assert _read(connection).startswith(b"HTTP/1.1 401")


def test_clients_that_disconnect(port: int, stub: Stub) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(HALF)
    stub.go.clear()
    body = [json.dumps({"input": text}).encode() for text in ("first", "second")]
    first, second = (socket.create_connection(("127.0.0.1", port)) for _ in body)
    for connection, content in zip((first, second), body, strict=True):
        head = f"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n"
        connection.sendall(head.encode() + content)
        wait_until(stub.busy.is_set)

    def numbers() -> str:
        return httpx.get(f"http://127.0.0.1:{port}/metrics").text

    wait_until(lambda: "cliptune_queue_texts 1.0" in numbers())
    second.close()
    wait_until(lambda: "cliptune_queue_texts 0.0" in numbers())
    stub.go.set()
    assert first.recv(100).startswith(b"HTTP/1.1 200")
    first.close()
    assert stub.asked == [["first"]]
    assert 'cliptune_requests_total{route="/v1/embeddings",status="499"} 2.0' in numbers()
