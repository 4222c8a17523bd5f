"""The routes of the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from urllib.parse import quote, unquote

import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from components.serving.server.address import ServingLimits
from components.serving.server.app import make_app
from components.serving.server.batches import Batcher, Metrics
from tests.support.serving import Stub, stub_served, vector_of


@pytest.fixture
def client(app_of: Callable[..., Starlette]) -> Iterator[TestClient]:
    with TestClient(app_of(), base_url="http://127.0.0.1") as client:
        yield client


def test_embeddings_and_models(client: TestClient) -> None:
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


@pytest.mark.parametrize("name", ["модель", "模型", "ü", "a b%", "a\tb"])
def test_an_encoder_may_have_any_name(name: str) -> None:
    served = replace(stub_served(Stub()), id=name, names=frozenset({name}))
    metrics = Metrics()
    app = make_app(Batcher(served, ServingLimits(), metrics), ServingLimits(), metrics)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        answer = client.post("/v1/embeddings", json={"input": "a dog", "model": name})
        assert (answer.status_code, answer.json()["model"]) == (200, name)
        assert unquote(answer.headers["x-cliptune-model"]) == name
        assert client.get(f"/v1/models/{quote(name)}").json()["id"] == name
        assert client.get("/metrics").status_code == 200


def test_health(client: TestClient, app_of: Callable[..., Starlette]) -> None:
    healthy = {"live": True, "ready": True, "model": "text-encoder/1", "precision": "fp32"}
    healthy |= {"image_tower_sha256": "tower", "others": [], "problem": None}
    for path in ("/health", "/health/live", "/health/ready"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()) == (200, healthy)
    with TestClient(app_of(problem="version 2 cannot be loaded"), base_url="http://127.0.0.1") as other:
        answer = other.get("/health/ready")
    assert (answer.status_code, answer.json()["problem"]) == (200, "version 2 cannot be loaded")
    # Without its lifespan nothing starts the worker.
    answer = TestClient(app_of(), base_url="http://127.0.0.1").get("/health/live")
    assert (answer.status_code, answer.json()["live"]) == (503, False)


def test_unknown_paths_and_methods(client: TestClient) -> None:
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
