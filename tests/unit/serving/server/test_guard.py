"""Tokens and addresses, and limits on the size of requests and the number of connections."""

from __future__ import annotations

import json
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.client import HTTPConnection

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from components.core.system.errors import InputError
from components.serving.server.address import TOKEN as NAME
from components.serving.server.address import ServingLimits, bind, read_tokens
from components.serving.server.serve import uvicorn_config
from tests.support.serving import Stub, live, wait_until

TOKEN, OTHER = "one-token-of-many", "another-good-token"
BODY = {"input": "a"}


def test_other_machines_need_a_token() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "localhost", "example.org"):
        with pytest.raises(InputError, match=f"--host {host} can be reached by other machines: set {NAME}"):
            read_tokens(host, {})
        assert read_tokens(host, {NAME: TOKEN}) == [TOKEN]
    for host in ("127.0.0.1", "::1", "127.1.2.3"):
        assert read_tokens(host, {}) == read_tokens(host, {NAME: " , "}) == []
        assert read_tokens(host, {NAME: f"{TOKEN}, {OTHER}"}) == [TOKEN, OTHER]


def test_a_weak_token_is_refused_and_not_shown() -> None:
    for weak in ("short", f"{TOKEN},short", "\u00e9" * 20, "a\nb" * 10):
        with pytest.raises(InputError, match=f"a token of {NAME} is weak") as caught:
            read_tokens("127.0.0.1", {NAME: weak})
        assert weak not in str(caught.value)


def test_a_taken_port_and_a_foreign_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{port} "):
            bind("127.0.0.1", port)
    with pytest.raises(InputError, match=r"cannot listen on 192\.0\.2\.1:0 "):
        bind("192.0.2.1", 0)
    with bind("127.0.0.1", 0) as place, pytest.raises(ConnectionRefusedError):
        socket.create_connection(place.getsockname())


def test_every_route_but_health_requires_a_correct_token(app_of: Callable[..., Starlette]) -> None:
    with TestClient(app_of(tokens=[TOKEN, OTHER])) as client:
        for path in ("/v1/models", "/metrics", "/nothing", "/v1/embeddings"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == 200
        for token in (TOKEN, OTHER):
            headers = {"authorization": f"Bearer {token}"}
            assert client.post("/v1/embeddings", json=BODY, headers=headers).status_code == 200
    texts = ("Bearer ", "Bearer", "", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x",
             f"Bearer {TOKEN} {TOKEN}", f"Bearer {TOKEN.upper()}", f"Bearer {'x' * 10_000}")  # fmt: skip
    for header in (*(text.encode() for text in texts), b"Bearer \xff\xfe\xe9"):
        answer = client.post("/v1/embeddings", json=BODY, headers={b"authorization": header})
        assert (answer.status_code, answer.json()["error"]["type"]) == (401, "invalid_request_error"), header


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:8300"}, 200),
        ({"host": "[::1]:8300"}, 200),
        ({"host": "[::1]:8300", "origin": "http://[::1]:8300"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"host": "evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example:8300"}, 403),
        ({"host": ""}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_without_a_token_no_other_site_is_answered(
    headers: dict[str, str], status: int, app_of: Callable[..., Starlette]
) -> None:
    with TestClient(app_of(), base_url="http://127.0.0.1:8300") as client:
        for path, body in (("/v1/models", None), ("/v1/embeddings", BODY)):
            answer = client.request("POST" if body else "GET", path, json=body, headers=headers)
            assert answer.status_code == status, (path, headers)
    with TestClient(app_of(tokens=[TOKEN]), base_url="http://127.0.0.1:8300") as client:
        own = {"authorization": f"Bearer {TOKEN}"}
        assert client.post("/v1/embeddings", json=BODY, headers=headers | own).status_code == 200


LIMITS = ServingLimits(body=10_000)
HUNDRED_MB = 100_000_000
HALF = b'POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"input"'


@pytest.fixture
def port(app_of: Callable[..., Starlette]) -> Iterator[int]:
    with live(app_of(LIMITS), LIMITS) as found:
        yield found


def _zeros() -> Iterator[bytes]:
    for _ in range(HUNDRED_MB // 100_000):
        yield b"0" * 100_000


def test_a_hundred_megabytes(port: int) -> None:
    for headers in ({"content-length": str(HUNDRED_MB)}, {}):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = httpx.post(f"http://127.0.0.1:{port}/v1/embeddings", content=_zeros(), headers=headers, timeout=60)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_long")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000
    # A client that sends all before it reads sees the refusal too.
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", "/v1/embeddings", bytes(30_000_000))
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["error"]["code"]) == (413, "body_too_long")
    # The rest of the body is no part of the next request.
    connection.request("POST", "/v1/embeddings", json.dumps(BODY))
    assert connection.getresponse().status == 200
    connection.close()


def test_clients_that_disconnect(port: int, stub: Stub) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(HALF)
    stub.go.clear()
    first, second = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
    for connection, text in ((first, "first"), (second, "second")):
        connection.sendall(_post(text))
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


def _post(text: str) -> bytes:
    body = json.dumps({"input": text})
    return f"POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def test_more_connections_than_allowed_get_status_503(app_of: Callable[..., Starlette]) -> None:
    limits = ServingLimits(connections=2)
    with live(app_of(limits), limits) as port, ExitStack() as held:
        clients = [held.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}")) for _ in range(3)]
        assert [client.get("/health").status_code for client in clients] == [200, 200, 503]


def test_responses_name_no_software_and_requests_are_not_logged() -> None:
    config = uvicorn_config(Starlette(), ServingLimits(stop_s=7))
    assert (config.server_header, config.access_log, config.proxy_headers) == (False, False, False)
    assert config.timeout_graceful_shutdown == 7
