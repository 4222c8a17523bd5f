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


def test_a_question_is_sent_once_in_a_run_and_a_failed_one_again_in_the_next(store: GenerationStore) -> None:
    class Failing(Echo):
        def answer(self, wanted: Iterable[Request]) -> Iterator[list[Reply]]:
            for batch in super().answer(wanted):
                yield [Reply(reply.request, None, "HTTP 500") for reply in batch]

    for engine, first in ((Failing(), SynthesisCounts(failed=300)), (Echo(), SynthesisCounts(generated=300))):
        counts = ask(store, engine, [*requests(300), *requests(300)], "t", None)
        assert (counts, len(engine.asked)) == (first + SynthesisCounts(replayed=300), 300)


def test_an_error_of_the_store_reaches_the_caller(store: GenerationStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_replies: object) -> None:
        raise InputError("generation store failed")

    monkeypatch.setattr(store, "add", refuse)
    engine = Echo()
    with pytest.raises(InputError, match="generation store failed"):
        ask(store, engine, requests(20), "t", None)
    assert len(engine.asked) <= 16
