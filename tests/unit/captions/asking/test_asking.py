"""Every unanswered question is put to the engine once, whoever else works on the same store."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from more_itertools import batched

from components.captions.asking import asking
from components.captions.asking.asking import ask
from components.captions.request import Reply, Request, Sampling
from components.captions.store import GenerationStore

SAMPLING = Sampling(1.0, 0.1, 40)


def _requests(count: int) -> list[Request]:
    return [Request("paraphrase_1", (("user", f"question {number}"),), "m", SAMPLING, 0) for number in range(count)]


class Echo:
    """Answers with the question, in batches; notes what it is asked."""

    model = "m"

    def __init__(self, batch: int = 8, gate: threading.Event | None = None) -> None:
        self.batch, self.gate = batch, gate
        self.asked: list[str] = []
        self.reached = threading.Event()

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for batch in batched(requests, self.batch):
            self.asked += [request.key for request in batch]
            self.reached.set()
            if self.gate is not None:
                assert self.gate.wait(30)
            yield [Reply(request, request.messages[0]["content"]) for request in batch]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_questions_are_taken_block_by_block_as_the_engine_wants_them(url: str) -> None:
    read: list[int] = []

    def requests() -> Iterator[Request]:
        for number, request in enumerate(_requests(2000)):
            read.append(number)
            yield request

    class Curious(Echo):
        def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
            for replies in super().answer(requests):
                assert len(read) <= len(self.asked) + asking._BLOCK
                yield replies

    engine = Curious()
    asked = ask(GenerationStore(url), engine, requests(), "t", None)
    assert (asked.generated, len(engine.asked)) == (2000, 2000)


def test_the_same_question_twice_in_one_run_is_asked_once(url: str) -> None:
    engine = Echo(batch=500)
    asked = ask(GenerationStore(url), engine, [*_requests(300), *_requests(300)], "t", None)
    assert (asked.generated, asked.replayed, len(engine.asked)) == (300, 300, 300)


def test_two_workers_on_one_store_ask_nothing_twice_and_both_see_everything_answered(url: str) -> None:
    requests, gate = _requests(700), threading.Event()
    slow, quick = Echo(gate=gate), Echo()
    first = threading.Thread(target=lambda: ask(GenerationStore(url), slow, requests, "slow", None))
    first.start()
    assert slow.reached.wait(30)
    threading.Timer(0.5, gate.set).start()
    store = GenerationStore(url)
    asked = ask(store, quick, requests, "quick", None)
    assert len(store.answers([request.key for request in requests])) == 700, "it waits for what the other took"
    first.join(30)
    assert not set(slow.asked) & set(quick.asked)
    assert len(slow.asked) + len(quick.asked) == 700
    assert slow.asked
    assert quick.asked
    assert asked.replayed + asked.generated == 700


def test_what_a_worker_gave_up_is_taken_over(url: str) -> None:
    requests = _requests(20)

    class Dying(Echo):
        def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
            yield next(super().answer(requests))
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        ask(GenerationStore(url), Dying(), requests, "t", None)
    engine = Echo()
    asked = ask(GenerationStore(url), engine, requests, "t", None)
    assert (asked.replayed, asked.generated) == (8, 12)


def test_a_failure_is_final_for_the_run_and_open_for_the_next(url: str) -> None:
    class Failing(Echo):
        def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
            for replies in super().answer(requests):
                yield [Reply(reply.request, None, "HTTP 500") for reply in replies]

    engine, store = Failing(), GenerationStore(url)
    asked = ask(store, engine, [*_requests(300), *_requests(300)], "t", None)
    assert (asked.failed, len(engine.asked)) == (300, 300)
    assert ask(store, Echo(), _requests(300), "t", None).generated == 300
