"""A failed attempt is repeated, and the verdict is that the row or the server fails; no server is needed for that."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from components.captions.generating import client as clients
from components.captions.generating.client import LlmClient, RowRefused, ServerFault, ServerOptions
from components.captions.generating.engines.server import replies_to
from components.captions.generating.wire import Parameters, body_of
from components.captions.prompting.request import (
    COMPLETION,
    PICTURE,
    ModelAnswer,
    PromptPicture,
    Reply,
    Request,
    Sampling,
)
from components.core.system.errors import InputError

Handler = Callable[[httpx2.Request], Awaitable[httpx2.Response]]


def client(handler: Handler, key: str = "none", **changes: Any) -> LlmClient:
    defaults = {"urls": ["http://a/v1"], "model": "fake", "attempts": 2, "timeout_s": 5.0, "api_key_env": "KEY"}
    made = LlmClient(ServerOptions.model_validate(defaults | changes), key)
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    made._client = openai.AsyncOpenAI(base_url="http://a/v1", api_key=key, http_client=http, timeout=5.0, max_retries=0)
    return made


def said(text: object) -> httpx2.Response:
    return httpx2.Response(200, json={"choices": [{"message": {"content": text}}]})


def prompt(request: httpx2.Request) -> str:
    content: str = json.loads(request.content)["messages"][-1]["content"]
    return content


def question(text: str) -> Request:
    return Request("paraphrase_1", (("user", text),), "fake", Sampling(1.0, 0.1, 40), 0)


def replies(handler: Handler, texts: list[str], **changes: Any) -> list[Reply]:
    """The replies to these questions, all sent at once."""

    async def ask() -> list[Reply]:
        pool = client(handler, **changes)
        return await asyncio.gather(*(pool.reply(question(text)) for text in texts))

    return asyncio.run(ask())


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "PAUSE_S", 0.01)


@contextmanager
def response(key: str = "none", **described: Any) -> Iterator[Callable[[], ModelAnswer]]:
    """An attempt that gets this response."""

    async def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(**described)

    yield lambda: asyncio.run(client(handler, key)._attempt(question("a dog")))


def test_a_status_or_a_broken_body_is_a_fault_or_a_refusal() -> None:
    kinds: dict[type[Exception], list[int]] = {
        ServerFault: [408, 409, 425, 429, 500, 502, 503, 504, 529],
        RowRefused: [400, 401, 403, 404, 405, 413, 422],
    }
    for kind, code in ((kind, code) for kind, codes in kinds.items() for code in codes):
        with response(status_code=code) as ask, pytest.raises(kind, match=f"HTTP {code}") as fault:
            ask()
        assert (type(fault.value), getattr(fault.value, "overload", False)) == (kind, code == 429)
    for body in (b"", b'{"choices": [{"mess', b"[" * 100_000, b'{"choices": "\xff\xfe"}'):
        for headers in ({"content-type": "application/json"}, {"content-type": "text/html"}):
            with response(status_code=200, content=body, headers=headers) as ask, pytest.raises(ServerFault):
                ask()


@pytest.mark.parametrize("code", [400, 401, 403, 404])
def test_a_denial_stops_the_run_if_the_canary_is_denied_too(code: int) -> None:
    async def handler(request: httpx2.Request) -> httpx2.Response:
        denied = "penguin" in prompt(request) or strict
        return httpx2.Response(code, json={"error": {"message": "Blocked."}}) if denied else said("ok")

    strict = False
    failures = [reply.failure for reply in replies(handler, ["a dog", "a penguin", "a cat"])]
    assert failures == [None, f"HTTP {code}: Blocked.", None]
    strict = True
    wanted = rf"http://a/v1 refuses every question to model 'fake' \(HTTP {code}: Blocked.\).* variable KEY"
    with pytest.raises(InputError, match=wanted):
        replies(handler, ["a dog"])


def test_a_refusal_quotes_the_first_sentence_and_no_key() -> None:
    cases = {
        "Too long. You sent 71 tokens.": "HTTP 400: Too long.",
        "two\nlines\x1b[31m": "HTTP 400: two lines [31m",
        "long " * 100: "HTTP 400: " + ("long " * 100)[:200],
        None: "HTTP 400",
        "the key secret-1 is wrong": "HTTP 400: the key *** is wrong",
    }
    for message, reason in cases.items():
        body = {"error": {"message": message}}
        with response("secret-1", status_code=400, json=body) as ask, pytest.raises(RowRefused) as refusal:
            ask()
        assert str(refusal.value) == reason


@settings(max_examples=40)
@example({"choices": [{"text": "a\0b"}]})
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["choices", "message", "content", "text"]), inner)))  # fmt: skip # noqa: E501
def test_whatever_a_server_says_is_an_answer_or_a_fault(body: object) -> None:
    with response(status_code=200, json=body) as ask:
        try:
            answer = ask()
        except ServerFault:
            return
    assert "\0" not in answer.text
    answer.text.encode("utf-8")


def test_rows_that_fail_alone_are_given_up_but_not_with_the_server() -> None:
    sent: Counter[str] = Counter()

    async def handler(request: httpx2.Request) -> httpx2.Response:
        sent[prompt(request)] += 1
        return said("yes") if prompt(request) == "Say yes." else httpx2.Response(500)

    (reply,) = replies(handler, ["bad"], attempts=6)
    assert reply.failure == "HTTP 500 after 6 attempts"
    assert sent == {"bad": 6, "Say yes.": 1}
    failures = [reply.failure for reply in replies(handler, [f"bad {number}" for number in range(40)])]
    assert failures == ["HTTP 500 after 2 attempts"] * 40
    canaries = 0

    async def handler(request: httpx2.Request) -> httpx2.Response:
        nonlocal canaries
        if prompt(request) == "first" or canaries == 2:
            return said("good")
        canaries += prompt(request) == "Say yes."
        raise httpx2.ReadError("reset")

    assert [reply.answer for reply in replies(handler, ["first", "second"])] == ["good"] * 2


def test_a_row_that_overloads_the_server_is_given_up_but_only_in_the_end() -> None:
    in_flight = 0

    async def handler(_: httpx2.Request) -> httpx2.Response:
        nonlocal in_flight
        if in_flight >= 2:
            return httpx2.Response(429)
        in_flight += 1
        await asyncio.sleep(0.002)
        in_flight -= 1
        return said("good")

    assert {reply.answer for reply in replies(handler, [f"row {number}" for number in range(20)])} == {"good"}

    async def handler(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(429) if prompt(request) == "too large" else said("good")

    (reply,) = replies(handler, ["too large"], give_up_s=0.2)
    assert str(reply.failure).startswith("HTTP 429 after")


def test_chats_completions_and_pictures_are_sent_as_openai_documents_them() -> None:
    sampling = {"model": "fake", "temperature": 1.0, "top_p": 0.1, "max_tokens": 40}
    messages = [{"role": "user", "content": "a dog"}]
    assert body_of(question("a dog"), "fake", Parameters()) == ("/chat/completions", sampling | {"messages": messages})
    completion = replace(question(""), chat=((COMPLETION, "A: cat\nDifference:"),))
    assert body_of(completion, "fake", Parameters()) == ("/completions", sampling | {"prompt": "A: cat\nDifference:"})
    pictures = (PromptPicture(b"one", "image/png"), PromptPicture(b"two", "image/jpeg"))
    chat = (("system", "Judge."), ("user", f"Compare {PICTURE} with {PICTURE}, please."))
    _, body = body_of(replace(question(""), chat=chat, pictures=pictures), "fake", Parameters())
    system, user = body["messages"]
    assert system["content"] == "Judge."
    shown = [part.get("text", part.get("image_url", {}).get("url")) for part in user["content"]]
    addresses = ["data:image/png;base64,b25l", "data:image/jpeg;base64,dHdv"]
    assert shown == ["Compare ", addresses[0], " with ", addresses[1], ", please."]


class DenyingClient:
    """Denies the first request when it has all three, and then answers the others."""

    def __init__(self) -> None:
        self._all, self._denied, self._waiting = asyncio.Event(), asyncio.Event(), 0

    async def reply(self, request: Request) -> Reply:
        if request.attempt == 0:
            await self._all.wait()
            self._denied.set()
            raise InputError("another key")
        self._waiting += 1
        if self._waiting == 2:
            self._all.set()
        await self._denied.wait()
        await asyncio.sleep(0.01)
        return Reply(request, "A dog.")

    async def close(self) -> None:
        """Nothing is open."""


def test_requests_in_flight_arrive_before_the_error_that_ends_the_work() -> None:
    made: Any = DenyingClient
    batches = replies_to([replace(question("a dog"), attempt=number) for number in range(3)], made, 3)
    assert {reply.request.attempt for reply in next(batches)} == {1, 2}
    with pytest.raises(InputError, match="another key"):
        next(batches)
