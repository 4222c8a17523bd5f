"""Who may ask, how often, and how many at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from components.serving.limits import Limits
from tests.support.serving import Stub, live

TOKEN, OTHER = "one-token-of-many", "another-good-token"
QUESTION = {"input": "a"}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_every_route_but_health_wants_a_token(app_of: Callable[..., Starlette]) -> None:
    with TestClient(app_of(tokens=[TOKEN, OTHER])) as client:
        for path in ("/v1/models", "/metrics", "/nothing", "/v1/embeddings"):
            answer = client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/health").status_code == 200
        for token in (TOKEN, OTHER):
            assert client.post("/v1/embeddings", json=QUESTION, headers=_bearer(token)).status_code == 200
            assert client.get("/metrics", headers=_bearer(token)).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"Bearer ",
        b"Bearer",
        b"",
        TOKEN.encode(),
        f"Basic {TOKEN}".encode(),
        f"Bearer {TOKEN[:-1]}".encode(),
        f"Bearer {TOKEN}x".encode(),
        f"Bearer {TOKEN} {TOKEN}".encode(),
        f"Bearer {TOKEN.upper()}".encode(),
        b"Bearer \xff\xfe\xe9",
        b"Bearer " + b"x" * 10_000,
    ],
)
def test_wrong_tokens(sent: bytes, app_of: Callable[..., Starlette]) -> None:
    client = TestClient(app_of(tokens=[TOKEN]))
    answer = client.post("/v1/embeddings", json=QUESTION, headers={b"authorization": sent})
    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_each_token_has_a_rate_of_its_own(app_of: Callable[..., Starlette]) -> None:
    limits = Limits(rate=0.001, burst=2000)
    with TestClient(app_of(limits, [TOKEN, OTHER])) as client:
        for token in (TOKEN, OTHER):
            found = [client.post("/v1/embeddings", json=QUESTION, headers=_bearer(token)) for _ in range(3)]
            assert [answer.status_code for answer in found] == [200, 200, 429]
            assert found[2].json()["error"]["code"] == "rate_limit_exceeded"
            assert int(found[2].headers["retry-after"]) > 900
        assert all(client.get("/health").status_code == 200 for _ in range(5))


def test_who_guesses_tokens_is_slowed_down(app_of: Callable[..., Starlette]) -> None:
    client = TestClient(app_of(Limits(rate=0.001, burst=3000), [TOKEN]))
    statuses = [client.get("/v1/models", headers=_bearer(f"guess-{number}")).status_code for number in range(5)]
    assert statuses == [401, 401, 401, 429, 429]


def test_more_requests_than_can_be_held_are_refused(app_of: Callable[..., Starlette], stub: Stub) -> None:
    limits = Limits(rate=0, requests=3)

    async def ask(port: int) -> list[int]:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            asked = [asyncio.create_task(client.post("/v1/embeddings", json=QUESTION)) for _ in range(10)]
            done, _ = await asyncio.wait(asked, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            while len(done) < 7:
                await asyncio.sleep(0.01)
                done = {one for one in asked if one.done()}
            assert (await client.get("/health")).status_code == 200
            stub.go.set()
            return sorted(answer.status_code for answer in await asyncio.gather(*asked))

    stub.go.clear()
    with live(app_of(limits), limits) as port:
        assert asyncio.run(ask(port)) == [200] * 3 + [429] * 7
