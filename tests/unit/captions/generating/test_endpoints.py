"""What happens with endpoints as they are today: refused parameters, no credit, wrong addresses, hostile answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import closing
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
from components.captions.prompting.request import PICTURE, PromptPicture, Reply, Request, Sampling
from components.core.settings import Settings
from components.core.system.errors import InputError
from tests.support import scripted_llm
from tests.support.ports import free_ports
from tests.support.scripted_llm import Script, openai_error, scripted

QUESTIONS = 12


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


@pytest.mark.parametrize(
    "refusal",
    [
        # Values and texts, not parameters; a caption may speak of them.
        {"message": "max_tokens is too large: 77. This model supports at most 16", "param": "max_tokens"},
        {"message": "'max_tokens' must be at least 100, got 77.", "param": "max_tokens"},
        {"message": "Invalid 'temperature': decimal above maximum value.", "param": "temperature"},
        {"message": "This model's maximum context length is 10 tokens and your request has 99.", "param": None},
        {"message": "The prompt 'unsupported. A temperature {sign}' is not allowed."},
        "temperature",
        None,
    ],
)  # fmt: skip
def test_other_refusals_change_no_parameter(refusal: object) -> None:
    sent = Parameters()
    assert not sent.learn({"temperature": 0.7, "max_tokens": 77}, refusal)
    assert sent.refused == []


def test_extra_wins_over_the_task_and_null_removes_a_key() -> None:
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
def test_a_server_that_will_answer_nothing_ends_the_run_at_once_in_its_own_words(
    script: Script, message: str, settings: Settings
) -> None:
    with scripted(script) as server:
        block = {"engine": "server", "urls": [server.url], "model": "fake", "concurrency": 4, "give_up_s": 3.0}
        models = settings.synthesize.model_copy(update={"llms": {"big": block}})
        with pytest.raises(InputError) as ended:
            list(make_engine(models, "big").answer(questions(500)))
        assert len(server.bodies) < 40
    assert message in str(ended.value)
    assert server.url in str(ended.value)
    assert "synthesize.llms.big" in str(ended.value) or "credit" in message


def test_an_address_without_a_server_ends_the_run_at_once() -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}/v1"
    options = ServerOptions.model_validate({"urls": [url], "model": "fake", "give_up_s": 3.0}, context="--llm")
    with pytest.raises(InputError, match=rf"{url} accepts no connection \(.*\): start the server, .* URL in --llm"):
        replies(ServerEngine(options), questions())


def test_rows_that_are_refused_alike_do_not_end_a_run_that_answers_others() -> None:
    with scripted(lambda body, _: openai_error("I see no dogs.") if "caption" in str(body) else scripted_llm.said("yes")) as server:  # fmt: skip # noqa: E501
        assert {reply.failure for reply in replies(engine(server.url), questions())} == {"HTTP 400: I see no dogs."}


def test_a_model_that_sees_nothing_ends_the_run() -> None:
    with scripted(scripted_llm.blind) as server:
        with pytest.raises(InputError, match=r"refuses every question .*image input is not supported"):
            replies(engine(server.url), questions(500, picture=b"jpeg"))
        assert len(server.bodies) < 40


@pytest.mark.parametrize("script", [scripted_llm.bomb, scripted_llm.endless])
def test_an_answer_without_bounds_is_a_failed_row(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MOST_BYTES", 4 << 20)

    def answered(body: scripted_llm.Body, number: int) -> scripted_llm.Answer:
        return script(body, number) if "caption 7" in str(body) else scripted_llm.said("ok")

    with scripted(answered) as server:
        failures = [reply.failure for reply in replies(engine(server.url), questions()) if reply.failure]
    assert failures == ["the answer has more than 4 MB"]
