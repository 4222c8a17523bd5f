"""Connections of slow clients end, and uvicorn's configuration is safe."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from starlette.applications import Starlette

from components.serving.address import ServingLimits
from components.serving.server import uvicorn_config
from tests.support.serving import Stub, live

LIMITS = ServingLimits(headers_s=0.5)
BODY = json.dumps({"input": "a"}).encode()
ASK = b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
DRIPPING = b"POST /v1/embeddings HTTP/1.1\r\n" + b"X: y\r\n" * 20


def _answer(connection: socket.socket) -> bytes:
    response = b""
    while not response.endswith(b"}"):
        response += connection.recv(65536)
    return response


def test_silence_and_slow_heads_end_the_connection(app_of: Callable[..., Starlette]) -> None:
    with live(app_of(LIMITS), LIMITS) as port:
        for first, sent in (False, b""), (False, DRIPPING), (True, DRIPPING):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.settimeout(10)
                if first:
                    connection.sendall(ASK)
                    assert _answer(connection).startswith(b"HTTP/1.1 200")
                count = 0
                with suppress(ConnectionResetError, BrokenPipeError):
                    for byte in sent:
                        connection.sendall(bytes([byte]))
                        count += 1
                        time.sleep(0.1)
                    assert connection.recv(1) == b""
                assert count < len(sent) or not sent


def test_responses_and_pauses_may_take_longer_than_a_head(app_of: Callable[..., Starlette], stub: Stub) -> None:
    with live(app_of(LIMITS), LIMITS) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.settimeout(10)
        for _ in range(2):
            stub.go.clear()
            connection.sendall(ASK)
            time.sleep(1.0)
            stub.go.set()
            assert _answer(connection).startswith(b"HTTP/1.1 200")
            time.sleep(1.0)


def test_a_client_that_reads_no_responses_is_disconnected(app_of: Callable[..., Starlette]) -> None:
    with live(app_of(LIMITS), LIMITS) as port, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", port))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 1_000_000)


def test_garbage_is_refused(app_of: Callable[..., Starlette]) -> None:
    with live(app_of(LIMITS), LIMITS) as port:
        negative = b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", negative, b"GET /" + b"a" * 100_000, b"\r\n\x00\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.settimeout(10)
                with suppress(ConnectionResetError, BrokenPipeError):
                    connection.sendall(garbage)
                    assert connection.recv(100)[:12] in (b"HTTP/1.1 400", b"")


def test_a_response_names_no_software_and_requests_are_not_logged() -> None:
    config = uvicorn_config(Starlette(), ServingLimits(stop_s=7))
    assert (config.server_header, config.access_log, config.proxy_headers) == (False, False, False)
    assert config.timeout_graceful_shutdown == 7
