"""The server over HTTP: routes, tokens, addresses, limits; requests refused with one clear error in OpenAI's format."""

from __future__ import annotations

import base64
import json
import resource
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from http.client import HTTPConnection
from urllib.parse import quote, unquote

import httpx
import numpy as np
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.testclient import TestClient

from components.core.system.errors import InputError
from components.serving.server.address import TOKEN as NAME
from components.serving.server.address import ServingLimits, bind, read_tokens
from components.serving.server.app import make_app
from components.serving.server.batches import Batcher, Metrics
from components.serving.server.messages import ApiError, EncodeResponse, read_request
from components.serving.server.serve import uvicorn_config
from components.serving.server.served import Served
from tests.support.serving import Stub, live, stub_served, vector_of, wait_until

TOKEN, OTHER = "one-token-of-many", "another-good-token"
BODY = {"input": "a"}
LIMITS = ServingLimits(body=10_000)


def app_of(served: Served, limits: ServingLimits = LIMITS, tokens: Sequence[str] = (), problem: str = "") -> Starlette:
    metrics = Metrics()
    metrics.serves(served)
    return make_app(Batcher(served, limits, metrics), limits, metrics, tokens, lambda: problem)


def client_of(served: Served | None = None, tokens: Sequence[str] = (), problem: str = "") -> TestClient:
    app = app_of(served or stub_served(Stub()), tokens=tokens, problem=problem)
    return TestClient(app, base_url="http://127.0.0.1:8300")


@pytest.fixture
def client() -> Iterator[TestClient]:
    with client_of() as client:
        yield client


def test_embeddings_and_models_are_for_no_other_site_without_a_token(client: TestClient) -> None:
    answer = client.post("/v1/embeddings", json={"input": ["a dog", "a cat"], "model": "text-encoder"})
    assert answer.status_code == 200
    assert answer.headers["x-cliptune-model"] == answer.json()["model"] == "text-encoder/1"
    assert answer.headers["x-content-type-options"] == "nosniff"
    vectors = np.array([row["embedding"] for row in answer.json()["data"]], np.float32)
    np.testing.assert_array_equal(vectors, np.stack([vector_of("a dog"), vector_of("a cat")]))
    assert answer.json()["usage"]["total_tokens"] == 4
    models = client.get("/v1/models").json()
    assert models["object"] == "list"
    assert [model["id"] for model in models["data"]] == ["text-encoder", "text-encoder/1", "text-encoder@champion"]
    for model in models["data"]:
        assert client.get(f"/v1/models/{model['id']}").json() == model
    own = {"authorization": f"Bearer {TOKEN}"}
    with client_of(tokens=[TOKEN]) as guarded:
        for headers, status in FOREIGN:
            found = client.get("/v1/models", headers=headers), client.post("/v1/embeddings", json=BODY, headers=headers)
            assert [answer.status_code for answer in found] == [status] * 2, headers
            assert guarded.post("/v1/embeddings", json=BODY, headers=headers | own).status_code == 200


@pytest.mark.parametrize("name", ["модель", "模型", "ü", "a b%", "a\tb"])
def test_an_encoder_may_have_any_name(name: str) -> None:
    with client_of(replace(stub_served(Stub()), id=name, names=frozenset({name}))) as client:
        answer = client.post("/v1/embeddings", json={"input": "a dog", "model": name})
        assert (answer.status_code, answer.json()["model"]) == (200, name)
        assert unquote(answer.headers["x-cliptune-model"]) == name
        assert client.get(f"/v1/models/{quote(name)}").json()["id"] == name
        assert client.get("/metrics").status_code == 200


def test_health_and_unknown_paths_and_methods(client: TestClient) -> None:
    healthy = {"live": True, "ready": True, "model": "text-encoder/1", "precision": "fp32"}
    healthy |= {"image_tower_sha256": "tower", "others": [], "problem": None}
    for path in ("/health", "/health/live", "/health/ready"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()) == (200, healthy)
    with client_of(problem="version 2 cannot be loaded") as other:
        answer = other.get("/health/ready")
    assert (answer.status_code, answer.json()["problem"]) == (200, "version 2 cannot be loaded")
    # Without its lifespan nothing starts the worker.
    answer = client_of().get("/health/live")
    assert (answer.status_code, answer.json()["live"]) == (503, False)
    error = {"message": "There is nothing here.", "type": "invalid_request_error", "param": None, "code": "not_found"}
    for path in ("/", "/v1/embeddings/", "/docs", "/openapi.json", "/v1/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd",
                 "/v1/models/..%2f..%2fparams.yaml", "//etc/passwd", "/v1/embeddings%00", "/\u202e<b>"):  # fmt: skip
        answer = client.get(path, follow_redirects=False)
        assert (answer.status_code, answer.json()) == (404, {"error": error}), path
    for answer in (client.get("/v1/embeddings"), client.delete("/health"), client.post("/metrics")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "not_found")


def test_metrics(client: TestClient) -> None:
    client.post("/v1/embeddings", json={"input": ["a", "b"]})
    client.post("/v1/embeddings", json={"input": []})
    client.get("/../secret")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for line in (
        'cliptune_requests_total{route="/v1/embeddings",status="200"} 1.0',
        'cliptune_requests_total{route="/v1/embeddings",status="400"} 1.0',
        'cliptune_requests_total{route="other",status="404"} 1.0',
        "cliptune_request_seconds_count 1.0",
        "cliptune_batch_texts_sum 2.0",
        "cliptune_texts_total 2.0",
        "cliptune_queue_texts 0.0",
        'cliptune_model_info{image_tower_sha256="tower",model="text-encoder/1",sha256="sha1"} 1.0',
    ):
        assert line in answer.text.splitlines()


def test_other_machines_need_a_token_and_a_weak_one_is_refused_and_not_shown() -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "localhost", "example.org"):
        with pytest.raises(InputError, match=f"--host {host} can be reached by other machines: set {NAME}"):
            read_tokens(host, {})
        assert read_tokens(host, {NAME: TOKEN}) == [TOKEN]
    for host in ("127.0.0.1", "::1", "127.1.2.3"):
        assert read_tokens(host, {}) == read_tokens(host, {NAME: " , "}) == []
        assert read_tokens(host, {NAME: f"{TOKEN}, {OTHER}"}) == [TOKEN, OTHER]
    for weak in ("short", f"{TOKEN},short", "\u00e9" * 20, "a\nb" * 10):
        with pytest.raises(InputError, match=f"a token of {NAME} is weak") as caught:
            read_tokens("127.0.0.1", {NAME: weak})
        assert weak not in str(caught.value)


def test_taken_ports_and_foreign_addresses_are_refused_and_answers_sent_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{port} "):
            bind("127.0.0.1", port)
    with pytest.raises(InputError, match=r"cannot listen on 192\.0\.2\.1:0 "):
        bind("192.0.2.1", 0)
    with bind("127.0.0.1", 0) as place, pytest.raises(ConnectionRefusedError):
        socket.create_connection(place.getsockname())
    # asyncio sets TCP_NODELAY only for a socket that names its protocol.
    with bind("127.0.0.1", 0) as place:
        assert place.proto == socket.IPPROTO_TCP


def test_every_route_but_health_requires_a_correct_token() -> None:
    with client_of(tokens=[TOKEN, OTHER]) as client:
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


FOREIGN = [
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
]


HUNDRED_MB = 100_000_000
HALF = b'POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{"input"'


@pytest.fixture
def stub() -> Stub:
    return Stub()


@pytest.fixture
def port(stub: Stub) -> Iterator[int]:
    with live(app_of(stub_served(stub)), LIMITS) as found:
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


def test_more_connections_than_allowed_get_status_503(stub: Stub) -> None:
    limits = ServingLimits(connections=2)
    with live(app_of(stub_served(stub), limits), limits) as port, ExitStack() as held:
        clients = [held.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}")) for _ in range(3)]
        assert [client.get("/health").status_code for client in clients] == [200, 200, 503]


def test_responses_name_no_software_and_requests_are_not_logged() -> None:
    config = uvicorn_config(Starlette(), ServingLimits(stop_s=7))
    assert (config.server_header, config.access_log, config.proxy_headers) == (False, False, False)
    assert config.timeout_graceful_shutdown == 7


PARSED_LIMITS = ServingLimits(text=50, word=20, texts=3)
VECTORS = [np.array([0.6, -0.8], np.float32), np.array([1 / 3, 2 / 3], np.float32)]


def test_a_text_or_a_list_of_texts() -> None:
    assert read_request(b'{"input": "a dog"}', PARSED_LIMITS).texts == ["a dog"]
    whole = {"input": ["a", "b"], "model": "m", "encoding_format": "base64", "dimensions": 4, "user": "u"}
    assert read_request(json.dumps(whole).encode(), PARSED_LIMITS).model_dump() == whole
    for texts in (["a " * 25, "b" * 20, "c"], ["<b> &lt;</b>", "\x00\x1b[31m\x07\r\n", "😀 caf\u00e9"]):
        assert read_request(json.dumps({"input": texts}).encode(), PARSED_LIMITS).texts == texts


def test_wrong_requests_get_one_clear_error() -> None:
    for body, code, param in (
        (b"", "invalid_json", None),
        (b'{"input": "\xff\xfe"}', "invalid_json", None),
        (b'{"input": "\\ud800"}', "invalid_json", None),
        (b'{"input": "a\x00b"}', "invalid_json", None),
        (b'{"input": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "invalid_json", None),
        (b'["a"]', "invalid_json", None),
        (b"{}", "missing_value", "input"),
        (b'{"input": []}', "invalid_value", "input"),
        (b'{"input": ""}', "invalid_value", "input"),
        (b'{"input": ["a", 1]}', "invalid_value", "input"),
        (b'{"input": [1, 2]}', "tokens_not_supported", "input"),
        (b'{"input": [[1, 2], [3]]}', "tokens_not_supported", "input"),
        (b'{"input": ["a", "b", "c", "d"]}', "too_many_texts", "input"),
        (b'{"input": "' + b"a " * 26 + b'"}', "text_too_long", "input"),
        (b'{"input": "a ' + b"b" * 21 + b'"}', "text_too_long", "input"),
        (b'{"input": "a", "encoding_format": "int8"}', "invalid_value", "encoding_format"),
        (b'{"input": "a", "dimensions": 1e999}', "invalid_value", "dimensions"),
        (b'{"input": "a", "stream": true}', "unknown_parameter", "stream"),
    ):
        with pytest.raises(ApiError) as caught:
            read_request(body, PARSED_LIMITS)
        error = caught.value
        assert (error.status, error.code, error.param) == (400, code, param), body[:50]
        assert len(error.message) < 200


def test_a_hundred_thousand_wrong_items_cause_one_error_and_a_small_queue_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        read_request(json.dumps({"input": [None] * 100_000}).encode(), ServingLimits())
    assert isinstance(caught.value.__context__, ValidationError)
    assert caught.value.__context__.error_count() == 1
    with pytest.raises(InputError, match="--max-queue 8 is too small: give at least 9"):
        ServingLimits(texts=9, queue=8)


def test_vectors_and_errors_have_openais_format() -> None:
    for kind in ("float", "base64"):
        content = json.loads(bytes(EncodeResponse("text-encoder/3", VECTORS, 7).response(kind).body))
        found = [row.pop("embedding") for row in content["data"]]
        vectors = [np.frombuffer(base64.b64decode(one), "<f4") for one in found] if kind == "base64" else found
        np.testing.assert_array_equal(np.array(vectors, np.float32), np.stack(VECTORS))
        assert content == {
            "object": "list", "data": [{"object": "embedding", "index": number} for number in (0, 1)],
            "model": "text-encoder/3", "usage": {"prompt_tokens": 7, "total_tokens": 7},
        }  # fmt: skip
    for status, kind in ((400, "invalid_request_error"), (429, "rate_limit_error"), (500, "server_error")):
        response = ApiError(status, 'No "<b>".', "code", "input", retry_after=2).response()
        error = {"message": 'No "<b>".', "type": kind, "param": "input", "code": "code"}
        assert (response.status_code, json.loads(bytes(response.body))) == (status, {"error": error})
        assert response.headers["retry-after"] == "2"
