"""The server engine with endpoints as they are today: keys, refused parameters, no credit, cut and hostile answers."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from components.captions.generating import client, wire
from components.captions.generating.asking import SynthesisCounts, ask
from components.captions.generating.client import ServerOptions
from components.captions.generating.engines import make_engine
from components.captions.generating.engines.server import ServerEngine
from components.captions.generating.store import GenerationStore
from components.captions.generating.store.database import GENERATIONS
from components.captions.generating.wire import Parameters
from components.captions.prompting.parsing import first_line
from components.captions.prompting.request import PICTURE, ModelAnswer, PromptPicture, Reply, Request, Sampling
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings
from components.core.system.errors import InputError
from tests.support import scripted_llm
from tests.support.ports import free_ports
from tests.support.scripted_llm import Answer, Body, Script, openai_error, said, scripted

QUESTIONS = 12
SCORE = '{"image1_description": "a", "image2_description": "b", "score": 0.5, "reasoning": "c"}'
KEY = "sk-planted-0123456789"


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAUSE_S", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def questions(count: int = QUESTIONS, picture: bytes | None = None) -> list[Request]:
    shown = () if picture is None else (PromptPicture(picture, "image/jpeg"),)
    text = "" if picture is None else PICTURE
    chats = [(("user", f"{text}caption {number}"),) for number in range(count)]
    return [Request("paraphrase_1", chat, "fake", Sampling(0.7, 0.1, 77), 0, shown) for chat in chats]


def engine(url: str, **changes: Any) -> ServerEngine:
    options = {"urls": [url], "model": "fake", "concurrency": 4, "give_up_s": 30.0, **changes}
    return ServerEngine(ServerOptions.model_validate(options))


def replies(engine: ServerEngine, requests: Iterable[Request]) -> list[Reply]:
    return list(chain.from_iterable(engine.answer(requests)))


def test_requests_in_flight_reach_the_concurrency_and_never_exceed_it() -> None:
    together, waiting, most = threading.Barrier(8, timeout=10), set[int](), list[int]()

    def meet(_body: Body, _number: int) -> Answer:
        waiting.add(threading.get_ident())
        most.append(len(waiting))
        together.wait()
        waiting.discard(threading.get_ident())
        return said("A dog.")

    with scripted(meet) as server:
        assert len(replies(engine(server.url, concurrency=8), questions(24))) == 24
    assert max(most) == 8


def test_replies_are_yielded_while_others_are_in_flight_and_a_slow_caller_bounds_what_is_taken() -> None:
    held, taken = threading.Event(), list[int]()

    def hold(_body: Body, number: int) -> Answer:
        assert number <= 3 or held.wait(10)
        return said("A dog.")

    def counted() -> Iterator[Request]:
        for number, request in enumerate(questions(100)):
            taken.append(number)
            yield request

    with scripted(hold) as server:
        arrived, found = engine(server.url).answer(counted()), list[Reply]()
        while len(found) < 3:
            found += next(arrived)
            assert len(taken) <= len(found) + 4
        arrived.close()
        assert (len(found), held.is_set()) == (3, False)
        held.set()


def test_seeds_depend_on_the_question_and_settings_tell_models_apart() -> None:
    with scripted(lambda *_: said("A dog.")) as server:
        used = engine(server.url, seeds=True, extra={"top_k": 5, "temperature": None})
        replies(used, questions(1))
        replies(used, questions(1))
    first, second = server.bodies
    assert first == second
    assert 0 <= first["seed"] < 2**31
    assert (first["top_k"], first["max_tokens"], "temperature" in first) == (5, 77, False)
    variants = [{}, {"revision": "1"}, {"extra": {"top_k": 5}}, {"extra": {"top_k": 6}}]
    assert len({engine("http://a/v1", **options).model for options in variants}) == 4
    assert engine("http://a/v1").model == "fake"


@pytest.mark.parametrize(
    ("status", "message"), [(401, f"Incorrect API key provided: {KEY}"), (404, "The model `fake` does not exist.")]
)
def test_a_wrong_key_or_model_stops_the_run_without_telling_the_key(
    status: int, message: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", KEY)
    with scripted(lambda *_: openai_error(message, status=status)) as server:
        used = engine(server.url, api_key_env="MY_KEY")
        with pytest.raises(InputError) as stopped:
            replies(used, questions(5))
    assert all(part in str(stopped.value) for part in (server.url, "'fake'", "MY_KEY", f"HTTP {status}"))
    assert KEY not in str(stopped.value) + caplog.text + repr(used) + repr(stopped.value)
    assert stopped.value.__cause__ is None
    assert stopped.value.__suppress_context__


def test_the_key_is_sent_and_never_shows(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", KEY)

    def refuse_one(body: Body, _number: int) -> Answer:
        return openai_error(f"no tea for {KEY} today", status=418) if "caption 1" in str(body) else said("A dog.")

    with scripted(refuse_one) as server:
        found = replies(engine(server.url, api_key_env="MY_KEY"), questions(3))
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert [reply.failure for reply in found if reply.failure] == ["HTTP 418: no tea for *** today"]
    assert "openai" in {record.name.split(".")[0] for record in caplog.records}
    assert KEY not in caplog.text + repr(found)
    monkeypatch.setenv("MY_KEY", f"{KEY}\n{KEY}")
    with pytest.raises(InputError, match="MY_KEY holds characters that no key has") as stopped:
        replies(engine(server.url, api_key_env="MY_KEY"), questions(1))
    assert KEY not in str(stopped.value)


def test_a_url_that_is_more_or_less_than_an_address_is_refused(settings: Settings) -> None:
    for url, message in [
        ("http://me:hidden-word@127.0.0.1:8000/v1", "the entry holds more than an address"),
        ("http://127.0.0.1:8000/v1?key=hidden-word", "the entry holds more than an address"),
        ("127.0.0.1:8000/v1", "the entry is not a URL"),
        ("http://127.0.0.1:port/v1", "the entry is not a URL"),
        ("http://a/v1 http://b/v1", r"a model has one URL: put a proxy \(nginx, LiteLLM\)"),
    ]:
        models = {"big": {"engine": "server", "urls": url.split(), "model": "fake"}}
        with pytest.raises(InputError, match=rf"synthesize\.llms\.big.*{message}") as refused:
            make_engine(settings.synthesize.model_copy(update={"llms": models}), "big")
        assert "hidden-word" not in str(refused.value)


def test_a_cut_answer_is_requested_once_more_with_more_tokens() -> None:
    def cut(body: Body, _number: int) -> Answer:
        words = ["a", "different", "picture", "of", "it"]
        return said(" ".join(words[: body["max_tokens"]]), "length" if body["max_tokens"] < len(words) else "stop")

    def too_long(body: Body, _number: int) -> Answer:
        return said("A dog runs", "length") if body["max_tokens"] < 100 else openai_error("max_tokens is too large.")

    (short,) = (replace(one, sampling=Sampling(0.7, 0.1, 2), parse=first_line) for one in questions(1))
    with scripted(cut) as server:
        (reply,) = replies(engine(server.url), [short])
    assert [body["max_tokens"] for body in server.bodies] == [2, 8]
    assert (reply.request, reply.answer) == (short, "a different picture of it")
    with scripted(too_long) as server:
        (reply,) = replies(engine(server.url), [replace(short, sampling=Sampling(0.7, 0.1, 40))])
    assert reply.answer is None
    assert re.fullmatch(r"HTTP 400: max_tokens is too large.*\(sent again with 160 tokens\)", str(reply.failure))


def test_a_cut_answer_counts_if_its_relevant_part_is_complete() -> None:
    for task, text, complete in [
        ("judge_negation", "Yes, it", True),
        ("judge_negation", "The sentence does", False),
        ("judge_negation", "<think>Yes, it", False),
        ("paraphrase_1", "A dog runs.\nIt is", True),
        ("paraphrase_1", "A dog runs along the", False),
        ("difference", "The dog is small. Q: What", True),
        ("difference", "The dog is", False),
        ("score_difference", SCORE + " I hope", True),
        ("score_difference", SCORE[:-9], False),
    ]:
        request = replace(questions(1)[0], parse=find_task(task).parse_cut)
        reply = Reply.of(request, ModelAnswer(text, cut=True), 160)
        failure = None if complete else "the answer was cut at 160 tokens: raise the task's max_tokens"
        assert (reply.answer, reply.failure) == (text if complete else None, failure)


@pytest.mark.parametrize(
    ("content", "reason", "failure"),
    [
        (None, None, "the model said nothing"),
        (" \n", "stop", "the model said nothing"),
        ("<think>A dog?</think>\n", "stop", "the model said nothing"),
        ("dog " * 6000, "stop", "the answer is too long for 77 tokens: the server ignores max_tokens"),
        (None, "length", "the answer was cut at 308 tokens: raise the task's max_tokens"),
        ("A dog", "content_filter", "the server's content filter stopped the answer"),
    ],
)
def test_an_answer_without_a_text_is_a_failure(content: str | None, reason: str | None, failure: str) -> None:
    with scripted(lambda body, _: said(content, reason) if "caption" in str(body) else said("yes")) as server:
        (reply,) = replies(engine(server.url), questions(1))
    assert (reply.answer, reply.failure) == (None, failure)


def parameters(body: Any) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in ("model", "messages")}


@pytest.mark.parametrize(
    ("script", "sent", "line"),
    [
        (
            scripted_llm.gpt_5,
            {"max_completion_tokens": 77},
            "with max_completion_tokens instead of max_tokens, without temperature, without top_p",
        ),
        (scripted_llm.azure, {"temperature": 0.7, "top_p": 0.1, "max_tokens": 77}, "without seed"),
        (scripted_llm.vllm, {"temperature": 0.7, "top_p": 0.1, "max_tokens": 77}, "without seed"),
        (scripted_llm.mistral, {"temperature": 0.7, "top_p": 0.1, "max_tokens": 77}, "without seed"),
        (scripted_llm.claude, {"temperature": 0.7, "max_tokens": 77}, "without top_p"),
        (scripted_llm.llama_cpp, {"temperature": 0.7, "top_p": 0.1, "max_tokens": 77}, None),
        (scripted_llm.busy, {"temperature": 0.7, "top_p": 0.1, "max_tokens": 77}, None),
    ],
)  # fmt: skip
def test_a_refused_parameter_is_renamed_or_left_out_once_for_the_run(
    script: Script, sent: dict[str, Any], line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with scripted(script) as server:
        used = engine(server.url, seeds=line == "without seed")
        assert [reply.failure for reply in replies(used, questions())] == [None] * QUESTIONS
        assert parameters(server.bodies[-1]) == sent
        asked = len(server.bodies)
        # Later questions of the run are sent rightly the first time.
        assert len(replies(used, questions())) == QUESTIONS
        assert len(server.bodies) == asked + QUESTIONS
    printed = capsys.readouterr().out.splitlines()
    assert printed == (
        [] if line is None else [f"fake: requests are sent {line}, because the server refuses these parameters"]
    )


def test_the_store_has_the_sampling_that_the_server_took(tmp_path: Path) -> None:
    with scripted(scripted_llm.gpt_5) as server, closing(GenerationStore(f"sqlite:///{tmp_path}/s.db")) as store:
        requests = questions(2)
        assert ask(store, engine(server.url), requests, "t", None) == SynthesisCounts(generated=2)
        query = select(GENERATIONS.c.sampling)
        kept = store._database.read(lambda connection: connection.execute(query).scalars().all())
        assert [json.loads(sampling) for sampling in kept] == [{"max_completion_tokens": 77}] * 2
        assert ask(store, engine(server.url), requests, "t", None) == SynthesisCounts(replayed=2)


def test_extra_wins_and_other_refusals_change_no_parameter() -> None:
    request, extra = (
        questions(1)[0],
        {"max_completion_tokens": 400, "max_tokens": None, "top_p": None, "temperature": 1},
    )
    assert Parameters(extra).sent(request) == {"temperature": 1, "max_completion_tokens": 400}
    # A key that the user has set is not left out.
    assert not Parameters(extra).learn({"temperature": 1}, "temperature is not supported")
    for key in ("messages", "model", "stream"):
        with pytest.raises(ValueError, match=f"{key} cannot be changed"):
            engine("http://127.0.0.1:9/v1", extra={key: None})
    for refusal in [
        # Values and texts, not parameters; a caption may speak of them.
        {"message": "max_tokens is too large: 77. This model supports at most 16", "param": "max_tokens"},
        {"message": "'max_tokens' must be at least 100, got 77.", "param": "max_tokens"},
        {"message": "Invalid 'temperature': decimal above maximum value.", "param": "temperature"},
        {"message": "This model's maximum context length is 10 tokens and your request has 99.", "param": None},
        {"message": "The prompt 'unsupported. A temperature {sign}' is not allowed."},
        "temperature",
        None,
    ]:
        sent = Parameters()
        assert not sent.learn({"temperature": 0.7, "max_tokens": 77}, refusal)
        assert sent.refused == []


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (scripted_llm.unpaid, "has no credit (HTTP 429: You exceeded your current quota, please check your plan and"),
        (lambda *_: openai_error("Insufficient Balance", status=402), "has no credit (HTTP 402: Insufficient Balance)"),
        (lambda *_: openai_error("No tools. Really."), "refuses every question to model 'fake' (HTTP 400: No tools.)"),
        (lambda *_: openai_error("Method not allowed", status=405), "(HTTP 405: Method not allowed)"),
        (scripted_llm.ollama, "(HTTP 404: model \"fake\" not found, try pulling it first): correct the URL, "),
        (scripted_llm.web_page, "does not answer as an OpenAI-compatible server (response is not JSON): correct"),
        (scripted_llm.wrong_path, "does not answer as an OpenAI-compatible server (response without an answer)"),
        (scripted_llm.redirect_to("http://u:pw@127.0.0.1:8/latest?k=1"), "redirects to http://127.0.0.1:8/latest, and"),
    ],
)  # fmt: skip
def test_a_server_without_answers_ends_the_run_in_its_words(script: Script, message: str, settings: Settings) -> None:
    with scripted(script) as server:
        block = {"engine": "server", "urls": [server.url], "model": "fake", "concurrency": 4, "give_up_s": 3.0}
        models = settings.synthesize.model_copy(update={"llms": {"big": block}})
        with pytest.raises(InputError) as ended:
            list(make_engine(models, "big").answer(questions(500)))
        assert len(server.bodies) < 40
    assert message in str(ended.value)
    assert server.url in str(ended.value)
    assert "synthesize.llms.big" in str(ended.value) or "credit" in message


def test_an_address_without_a_server_or_a_blind_model_ends_the_run() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}/v1"
    options = ServerOptions.model_validate({"urls": [url], "model": "fake", "give_up_s": 3.0}, context="--llm")
    with pytest.raises(InputError, match=rf"{url} accepts no connection \(.*\): start the server, .* URL in --llm"):
        replies(ServerEngine(options), questions())
    with scripted(scripted_llm.blind) as server:
        with pytest.raises(InputError, match=r"refuses every question .*image input is not supported"):
            replies(engine(server.url), questions(500, picture=b"jpeg"))
        assert len(server.bodies) < 40


@pytest.mark.parametrize("script", [scripted_llm.bomb, scripted_llm.endless])
def test_an_answer_without_bounds_is_a_failed_row(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_BYTES", 4 << 20)

    def answered(body: Body, number: int) -> Answer:
        return script(body, number) if "caption 7" in str(body) else said("ok")

    with scripted(answered) as server:
        failures = [reply.failure for reply in replies(engine(server.url), questions()) if reply.failure]
    assert failures == ["the answer has more than 4 MB"]
