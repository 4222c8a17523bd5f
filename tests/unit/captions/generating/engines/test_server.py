"""The server engine against a fake OpenAI server in a process of its own."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from itertools import chain
from typing import Any

import pytest

from components.captions.generating import client
from components.captions.generating.client import ServerOptions
from components.captions.generating.engines import make_engine
from components.captions.generating.engines.server import ServerEngine
from components.captions.prompting.parsing import first_line
from components.captions.prompting.request import ModelAnswer, Reply, Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.core.system.errors import InputError
from tests.support.fake_llm import Options as FakeOptions
from tests.support.fake_llm import answer_to
from tests.support.fake_llm_process import FakeServer, fake_llm

pytestmark = pytest.mark.integration

SCORE = '{"image1_description": "a", "image2_description": "b", "score": 0.5, "reasoning": "c"}'
KEY = "sk-planted-0123456789"
SAMPLING = Sampling(0.9, 0.1, 40)


def question(text: str) -> Request:
    return Request("paraphrase_1", (("system", "You rewrite."), ("user", text)), "fake", SAMPLING, 0)


def questions(count: int) -> Iterator[Request]:
    return (question(f"caption {number}") for number in range(count))


def replies(engine: ServerEngine, requests: Iterable[Request]) -> list[Reply]:
    return list(chain.from_iterable(engine.answer(requests)))


@pytest.fixture(scope="module")
def process() -> Iterator[FakeServer]:
    with fake_llm("--seed", "1") as server:
        yield server


@pytest.fixture
def server(process: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setattr(client, "PAUSE_S", 0.02)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    process.control("set", **asdict(FakeOptions()))
    return process


def engine_at(server: FakeServer, **options: Any) -> ServerEngine:
    return ServerEngine(ServerOptions.model_validate({"urls": [server.url], "model": "fake", **options}))


def test_requests_in_flight_reach_the_concurrency_and_never_exceed_it() -> None:
    with fake_llm("--latency", "0.3") as fresh:
        assert len(replies(engine_at(fresh, concurrency=8), questions(24))) == 24
        assert fresh.control()["most_in_flight"] == 8


def test_seeds_and_extra_keys_are_sent_when_asked_for(server: FakeServer) -> None:
    engine = engine_at(server, seeds=True, extra={"top_k": 5, "temperature": None})
    replies(engine, [question("a red dog")])
    first = server.control()["last"]["body"]
    replies(engine, [question("a red dog")])
    assert server.control()["last"]["body"] == first
    assert 0 <= first["seed"] < 2**31
    assert first["top_k"] == 5
    assert first["max_tokens"] == 40
    assert "temperature" not in first


def test_revision_and_extra_keys_tell_models_apart(server: FakeServer) -> None:
    variants = [{}, {"revision": "1"}, {"extra": {"top_k": 5}}, {"extra": {"top_k": 6}}]
    assert len({engine_at(server, **options).model for options in variants}) == 4
    assert engine_at(server).model == "fake"


def test_replies_are_yielded_while_others_are_in_flight(server: FakeServer) -> None:
    held = server.control()["sent"] + 3
    server.control("set", hold_after=held)
    arrived = engine_at(server, concurrency=8).answer(questions(50))
    found: list[Reply] = []
    while len(found) < 3:
        found += next(arrived)
    arrived.close()
    assert len(found) == 3
    assert server.control()["sent"] == held


def test_a_caller_that_is_slow_bounds_what_is_taken(server: FakeServer) -> None:
    taken: list[int] = []

    def counted() -> Iterator[Request]:
        for number, request in enumerate(questions(100)):
            taken.append(number)
            yield request

    arrived = engine_at(server, concurrency=4).answer(counted())
    first = next(arrived)
    server.control("set", hold_after=server.control("held")["sent"])
    assert len(first) <= len(taken) <= 8
    arrived.close()


@pytest.mark.parametrize(("model", "key", "code"), [("fake", "other", 401), ("unknown", KEY, 404)])
def test_a_wrong_key_or_model_stops_the_run_without_telling_the_key(
    server: FakeServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    model: str,
    key: str,
    code: int,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", KEY)
    server.control("set", model="fake", key=key)
    engine = engine_at(server, model=model, api_key_env="MY_KEY")
    with pytest.raises(InputError) as stopped:
        replies(engine, questions(5))
    message = str(stopped.value)
    assert all(part in message for part in (server.url, f"'{model}'", "MY_KEY", f"HTTP {code}"))
    assert KEY not in message + caplog.text + repr(engine) + repr(stopped.value)
    assert stopped.value.__cause__ is None
    assert stopped.value.__suppress_context__


def test_the_key_is_sent_and_never_shows(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", KEY)
    server.control("set", key=KEY, poison={"caption 1": "http_418"}, said=f"no tea for Bearer {KEY} today")
    found = replies(engine_at(server, api_key_env="MY_KEY"), questions(3))
    assert server.control()["last"]["key"] == f"Bearer {KEY}"
    assert [reply.failure for reply in found if reply.failure] == ["HTTP 418: no tea for Bearer *** today"]
    assert "openai" in {record.name.split(".")[0] for record in caplog.records}
    assert KEY not in caplog.text + repr(found)


def test_a_damaged_key_is_not_quoted(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n{KEY}")
    with pytest.raises(InputError, match="OPENAI_API_KEY") as stopped:
        replies(engine_at(server), questions(1))
    assert KEY not in str(stopped.value)


def test_a_url_that_is_more_or_less_than_an_address_is_refused(settings: Settings) -> None:
    for url, message in (
        ("http://me:hidden-word@127.0.0.1:8000/v1", "the entry holds more than an address"),
        ("http://127.0.0.1:8000/v1?key=hidden-word", "the entry holds more than an address"),
        ("127.0.0.1:8000/v1", "the entry is not a URL"),
        ("http://127.0.0.1:port/v1", "the entry is not a URL"),
        ("http://a/v1 http://b/v1", r"a model has one URL: put a proxy \(nginx, LiteLLM\)"),
    ):
        models = {"big": {"engine": "server", "urls": url.split(), "model": "fake"}}
        with pytest.raises(InputError, match=message) as refused:
            make_engine(settings.synthesize.model_copy(update={"llms": models}), "big")
        assert "synthesize.llms.big" in str(refused.value)
        assert "hidden-word" not in str(refused.value)


def test_a_cut_answer_is_requested_once_more_with_more_tokens(server: FakeServer) -> None:
    server.control("set", cuts=True)
    short = replace(question("a dog"), sampling=replace(SAMPLING, max_tokens=2), parse=first_line)
    (reply,) = replies(engine_at(server), [short])
    assert server.control()["last"]["body"]["max_tokens"] == 8
    assert reply.request == short
    assert len((reply.answer or "").split()) == len(answer_to("x").split())
    server.control("set", cuts=False, instead={"a dog": ["A dog runs along the", "length"]}, most_tokens=100)
    (reply,) = replies(engine_at(server), [replace(short, sampling=SAMPLING)])
    assert reply.answer is None
    assert re.fullmatch(r"HTTP 400: max_tokens is too large.*\(sent again with 160 tokens\)", str(reply.failure))


def test_a_cut_answer_counts_if_its_relevant_part_is_complete() -> None:
    cases = {
        ("judge_negation", "Yes, it"): True,
        ("judge_negation", "The sentence does"): False,
        ("judge_negation", "<think>Yes, it"): False,
        ("paraphrase_1", "A dog runs.\nIt is"): True,
        ("paraphrase_1", "A dog runs along the"): False,
        ("difference", "The dog is small. Q: What"): True,
        ("difference", "The dog is"): False,
        ("score_difference", SCORE + " I hope"): True,
        ("score_difference", SCORE[:-9]): False,
    }
    for (task, text), complete in cases.items():
        request = replace(question("a dog"), parse=find_task(task).parse_cut)
        reply = Reply.of(request, ModelAnswer(text, cut=True), 160)
        failure = None if complete else "the answer was cut at 160 tokens: raise the task's max_tokens"
        assert (reply.answer, reply.failure) == (text if complete else None, failure), text


def test_an_answer_without_a_text_is_a_failure(server: FakeServer) -> None:
    cases: list[tuple[str | None, str | None, str]] = [
        (None, None, "the model said nothing"),
        (" \n", "stop", "the model said nothing"),
        ("<think>A dog?</think>\n", "stop", "the model said nothing"),
        ("dog " * 3000, "stop", "the answer is too long for 40 tokens: the server ignores max_tokens"),
        (None, "length", "the answer was cut at 160 tokens: raise the task's max_tokens"),
        ("A dog", "content_filter", "the server's content filter stopped the answer"),
    ]
    for content, reason, failure in cases:
        server.control("set", instead={"a dog": [content, reason]})
        (reply,) = replies(engine_at(server), [question("a dog")])
        assert (reply.answer, reply.failure) == (None, failure)
