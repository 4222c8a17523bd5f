"""URLs that fail, rest and recover, seen from the requests that go to them; no server is needed for that."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from unittest import mock

import httpx2
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from components.captions.endpoints import addresses as endpoints
from components.captions.endpoints.addresses import Endpoints, Limits
from components.captions.endpoints.call import Fault, Refusal, call
from components.captions.request import Reply, Request, Said, Sampling
from components.core.errors import InputError

Handler = Callable[[httpx2.Request], Awaitable[httpx2.Response]]

CHAT = {"model": "fake", "messages": []}


def client(handler: Handler, url: str = "http://a/v1", key: str = "none") -> AsyncOpenAI:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(handler))
    return AsyncOpenAI(base_url=url, api_key=key, max_retries=0, http_client=http)


def said(text: object) -> httpx2.Response:
    return httpx2.Response(200, json={"choices": [{"message": {"content": text}}]})


def prompt(request: httpx2.Request) -> str:
    content: str = json.loads(request.content)["messages"][-1]["content"]
    return content


def question(text: str) -> Request:
    return Request("paraphrase_1", (("user", text),), "fake", Sampling(1.0, 0.1, 40), 0)


def limits(**changes: Any) -> Limits:
    defaults = {"model": "fake", "concurrency": 4, "timeout_s": 5.0, "attempts": 3, "give_up_s": 60.0}
    return Limits(**(defaults | {"seeds": False, "extra": {}, "key_env": "KEY"} | changes))


def replies(handlers: dict[str, Handler], texts: list[str], **changes: Any) -> list[Reply]:
    """What the requests get when these handlers answer at these hosts, all requests at once."""

    async def ask() -> list[Reply]:
        urls = {f"http://{host}/v1": handler for host, handler in handlers.items()}
        clients = {url: client(handler, url) for url, handler in urls.items()}
        pool = Endpoints(clients, limits(**changes))
        return await asyncio.gather(*(pool.reply(question(text)) for text in texts))

    return asyncio.run(ask())


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "BACKOFF_S", 0.002)
    monkeypatch.setattr(endpoints, "RECOVERY_S", 0.1)
    monkeypatch.setattr(endpoints, "_POLL_S", 0.002)


@contextmanager
def response(**described: Any) -> Iterator[Callable[[], str]]:
    """A call that gets this response."""

    async def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(**described)

    yield lambda: asyncio.run(call(client(handler), "/chat/completions", CHAT, 5.0, "KEY"))


@pytest.mark.parametrize("code", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_such_an_attempt_is_worth_another(code: int) -> None:
    with response(status_code=code) as ask, pytest.raises(Fault, match=f"HTTP {code}") as fault:
        ask()
    assert fault.value.overload == (code == 429)


@pytest.mark.parametrize("code", [400, 405, 413, 422])
def test_such_a_request_is_worth_no_other(code: int) -> None:
    with response(status_code=code) as ask, pytest.raises(Refusal, match=f"HTTP {code}"):
        ask()


@pytest.mark.parametrize("code", [401, 403, 404])
def test_such_a_server_is_worth_no_other_request_if_it_denies_a_canary_too(code: int) -> None:
    async def handler(request: httpx2.Request) -> httpx2.Response:
        denied = "penguin" in prompt(request) or strict
        return httpx2.Response(code, json={"error": {"message": "Blocked."}}) if denied else said("ok")

    strict = False
    found = replies({"a": handler}, ["a dog", "a penguin", "a cat"])
    assert [reply.failure for reply in found] == [None, f"HTTP {code}: Blocked.", None]
    strict = True
    wanted = f"http://a/v1 answered HTTP {code} when asked for model 'fake'.* environment variable KEY"
    with pytest.raises(InputError, match=wanted):
        replies({"a": handler}, ["a dog"])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("Too long. You sent 71 tokens.", "HTTP 400: Too long."),
        ("two\nlines\x1b[31m", "HTTP 400: two lines [31m"),
        ("long " * 100, "HTTP 400: " + ("long " * 100)[:120]),
        (None, "HTTP 400"),
        ("the key secret-1 is wrong", "HTTP 400: the key *** is wrong"),
    ],
)
def test_a_refusal_tells_the_first_sentence_and_no_key(message: str | None, reason: str) -> None:
    async def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(400, json={"error": {"message": message}})

    with pytest.raises(Refusal) as refusal:
        asyncio.run(call(client(handler, key="secret-1"), "/chat/completions", CHAT, 5.0, "KEY"))
    assert str(refusal.value) == reason


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), (None, 0.0), ("soon", 0.0), ("-3", 0.0), ("inf", 0.0), ("Mon, 40 Foo 2020", 0.0)],
)
def test_a_server_says_how_long_it_wants_to_rest(header: str | None, seconds: float) -> None:
    headers = {"retry-after": header} if header else {}
    with response(status_code=429, headers=headers) as ask, pytest.raises(Fault) as fault:
        ask()
    assert fault.value.rest_s == seconds


def test_a_server_says_until_when_it_wants_to_rest() -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=300), usegmt=True)
    with response(status_code=503, headers={"retry-after": until}) as ask, pytest.raises(Fault) as fault:
        ask()
    assert 200 < fault.value.rest_s <= 300


def test_a_message_counts_before_an_extra_text() -> None:
    choice = {"message": {"content": "a dog"}, "text": None}
    with response(status_code=200, json={"choices": [choice]}) as ask:
        assert ask() == Said("a dog")


@pytest.mark.parametrize(("content", "text"), [(None, ""), ("", ""), (" a dog \n", "a dog"), ("a\0b\ud800c", "ab?c")])
def test_an_answer_is_text_that_a_store_can_keep(content: object, text: str) -> None:
    body = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
    with response(status_code=200, content=body, headers={"content-type": "application/json"}) as ask:
        assert ask() == Said(text)


@example({"choices": [{"text": "a\0b"}]})
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["choices", "message", "content", "text"]), inner)))  # fmt: skip # noqa: E501
def test_whatever_a_server_says_is_an_answer_or_a_fault(body: object) -> None:
    with response(status_code=200, json=body) as ask:
        try:
            answer = ask()
        except Fault:
            return
    assert "\0" not in answer.text
    answer.text.encode("utf-8")


@pytest.mark.parametrize("body", [b"", b'{"choices": [{"mess', b"[" * 100_000, b'{"choices": "\xff\xfe"}'])
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
def test_a_broken_body_is_a_fault(body: bytes, kind: str) -> None:
    with response(status_code=200, content=body, headers={"content-type": kind}) as ask, pytest.raises(Fault):
        ask()


def test_an_attempt_ends_with_its_time() -> None:
    async def hangs(request: httpx2.Request) -> httpx2.Response:
        if prompt(request) == "bad":
            await asyncio.sleep(3600)
        return said("good")

    found = replies({"a": hangs}, ["good", "bad"], timeout_s=0.2)
    assert [reply.failure for reply in found] == [None, "time-out after 3 attempts"]


def test_a_row_that_fails_alone_is_given_up_when_a_canary_is_answered() -> None:
    asked: Counter[str] = Counter()

    async def handler(request: httpx2.Request) -> httpx2.Response:
        asked[prompt(request)] += 1
        return httpx2.Response(500) if prompt(request) == "bad" else said("yes")

    (reply,) = replies({"a": handler}, ["bad"])
    assert reply.failure == "HTTP 500 after 3 attempts"
    assert asked == {"bad": 3, "Say yes.": 1}


def test_many_rows_that_fail_alone_are_given_up_one_and_all() -> None:
    async def handler(request: httpx2.Request) -> httpx2.Response:
        return said("yes") if prompt(request) == "Say yes." else httpx2.Response(500)

    found = replies({"a": handler}, [f"bad {number}" for number in range(40)], concurrency=16)
    assert all(reply.failure is not None and reply.failure.startswith("HTTP 500 after") for reply in found)


def test_a_row_in_flight_when_the_server_dies_is_not_given_up_although_others_were_answered() -> None:
    canaries = 0

    async def handler(request: httpx2.Request) -> httpx2.Response:
        nonlocal canaries
        if prompt(request) == "first" or canaries == 2:
            return said("good")
        canaries += prompt(request) == "Say yes."
        raise httpx2.ReadError("reset")

    found = replies({"a": handler}, ["first", "second"], attempts=1)
    assert [reply.answer for reply in found] == ["good"] * 2


def test_no_row_pays_for_a_server_that_is_away_for_a_while() -> None:
    calls = 0

    async def handler(_: httpx2.Request) -> httpx2.Response:
        nonlocal calls
        calls += 1
        if calls <= 14:
            raise httpx2.ConnectError("refused")
        return said("good")

    found = replies({"a": handler}, [f"row {number}" for number in range(4)], attempts=1)
    assert [reply.answer for reply in found] == ["good"] * 4


def test_a_url_whose_circuit_is_open_gets_nothing_and_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    bad: list[str] = []

    async def good(_: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0.002)
        return said("good")

    async def dead(request: httpx2.Request) -> httpx2.Response:
        bad.append(prompt(request))
        return httpx2.Response(502)

    with mock.patch.object(endpoints, "RECOVERY_S", 3600):
        found = replies({"a": dead, "b": good}, [f"row {number}" for number in range(300)], attempts=99)
    assert all(reply.answer == "good" for reply in found)
    # Besides those that opened the circuit there are those that were in flight by then.
    assert endpoints.FAULTS_IN_A_ROW <= len(bad) <= endpoints.FAULTS_IN_A_ROW + 4
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "http://a/v1: 10 attempts in a row failed, the last with: HTTP 502; it is tried again every 3600 seconds"
    ]


def test_a_url_that_wants_to_rest_gets_nothing_and_others_go_on() -> None:
    tired: list[str] = []

    async def rests(request: httpx2.Request) -> httpx2.Response:
        tired.append(prompt(request))
        return httpx2.Response(429, headers={"retry-after": "3600"})

    async def good(_: httpx2.Request) -> httpx2.Response:
        return said("good")

    found = replies({"a": rests, "b": good}, [f"row {number}" for number in range(100)], attempts=99)
    assert all(reply.answer == "good" for reply in found)
    assert 1 <= len(tired) <= 4


def test_a_url_gets_as_much_as_it_bears() -> None:
    in_flight, refused = 0, 0

    async def handler(_: httpx2.Request) -> httpx2.Response:
        nonlocal in_flight, refused
        if in_flight >= 2:
            refused += 1
            return httpx2.Response(429)
        in_flight += 1
        await asyncio.sleep(0.002)
        in_flight -= 1
        return said("good")

    found = replies({"a": handler}, [f"row {number}" for number in range(100)], concurrency=32, attempts=99)
    assert all(reply.answer == "good" for reply in found)
    assert refused < 150, "a refusal to two answers or so is how it feels its way"


def test_the_url_with_the_fewest_in_flight_gets_the_next() -> None:
    got: Counter[str] = Counter()

    def at(name: str, until: int) -> Handler:
        async def handler(_: httpx2.Request) -> httpx2.Response:
            got[name] += 1
            while got.total() < until:
                await asyncio.sleep(0.002)
            return said("good")

        return handler

    replies({"a": at("even", 10), "b": at("odd", 10)}, [f"row {number}" for number in range(10)], concurrency=99)
    assert got == {"even": 5, "odd": 5}
    # One that is slow keeps what it has; the rest goes to the other.
    replies({"a": at("slow", 210), "b": at("fast", 0)}, [f"row {number}" for number in range(200)], concurrency=8)
    assert 8 <= got["slow"] <= 16


def test_hope_ends_when_no_url_answers_and_no_row_is_given_up() -> None:
    async def dead(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused")

    async def ill(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(503)

    with pytest.raises(InputError) as stopped:
        replies({"a": dead, "b": ill}, [f"row {number}" for number in range(20)], give_up_s=0.5, attempts=1)
    assert "0.5 seconds: http://a/v1 (connection failed), http://b/v1 (HTTP 503)" in str(stopped.value)
