"""Every unanswered question is sent to the engine once, and its reply is stored whatever happens afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from more_itertools import batched

from components.captions.generating import asking
from components.captions.generating.asking import SynthesisCounts, ask
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request
from components.core.system.errors import InputError
from tests.support.store_rows import keys, replies, requests


class Echo:
    """Answers in batches; notes the questions."""

    model = "m"

    def __init__(self, batch: int = 8) -> None:
        self.batch = batch
        self.asked: list[str] = []

    def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
        for batch in batched(wanted, self.batch):
            self.asked += keys(batch)
            yield replies(batch)


@pytest.fixture
def store(tmp_path: Path) -> GenerationStore:
    return GenerationStore(f"sqlite:///{tmp_path / 'store.db'}")


def test_questions_are_taken_block_by_block_as_the_engine_wants_them(store: GenerationStore) -> None:
    read: list[int] = []

    def wanted() -> Iterator[Request]:
        for number, request in enumerate(requests(2000)):
            read.append(number)
            yield request

    class Curious(Echo):
        def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
            for batch in super().answer(wanted):
                assert len(read) <= len(self.asked) + asking._LOOK_UP
                yield batch

    engine = Curious()
    assert ask(store, engine, wanted(), "t", None) == SynthesisCounts(generated=2000)
    assert len(engine.asked) == 2000


def test_the_same_question_twice_in_one_run_is_sent_once(store: GenerationStore) -> None:
    engine = Echo(batch=500)
    counts = ask(store, engine, [*requests(300), *requests(300)], "t", None)
    assert (counts, len(engine.asked)) == (SynthesisCounts(replayed=300, generated=300), 300)


def test_a_second_run_sends_only_what_a_killed_one_had_not_stored(store: GenerationStore) -> None:
    class Dying(Echo):
        def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
            yield next(super().answer(wanted))
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        ask(store, Dying(), requests(20), "t", None)
    assert ask(store, Echo(), requests(20), "t", None) == SynthesisCounts(replayed=8, generated=12)


def test_a_failure_is_final_for_the_run_and_open_for_the_next(store: GenerationStore) -> None:
    class Failing(Echo):
        def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
            for batch in super().answer(wanted):
                yield [Reply(reply.request, None, "HTTP 500") for reply in batch]

    engine = Failing()
    counts = ask(store, engine, [*requests(300), *requests(300)], "t", None)
    assert (counts, len(engine.asked)) == (SynthesisCounts(replayed=300, failed=300), 300)
    assert ask(store, Echo(), requests(300), "t", None).generated == 300


def test_an_error_of_the_store_reaches_the_caller(store: GenerationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_replies: object) -> None:
        raise InputError("generation store failed")

    monkeypatch.setattr(store, "add", refuse)
    engine = Echo()
    with pytest.raises(InputError, match="generation store failed"):
        ask(store, engine, requests(20), "t", None)
    assert len(engine.asked) <= 16
