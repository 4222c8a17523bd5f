"""Every unanswered question is sent to the engine once, and its reply is stored whatever happens afterwards."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from more_itertools import batched

from components.captions.generating.asking import asking
from components.captions.generating.asking.asking import ReplyWriter, SynthesisCounts, ask
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
                assert len(read) <= len(self.asked) + asking._BLOCK
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


class Slow:
    """A store whose first transaction takes until `may_end` is set."""

    def __init__(self, error: Exception | None = None) -> None:
        self.kept: list[list[str]] = []
        self.begun, self.may_end, self.error = threading.Event(), threading.Event(), error

    def add(self, batch: Sequence[Reply]) -> None:
        self.begun.set()
        assert self.may_end.wait(30)
        if self.error is not None:
            raise self.error
        self.kept.append([reply.request.key for reply in batch])


def _writer(store: Any) -> ReplyWriter:
    return ReplyWriter(store)


def test_batches_that_wait_share_a_bounded_transaction_in_order() -> None:
    store, asked = Slow(), requests(10)

    def bring(writer: ReplyWriter) -> None:
        for request in asked[1:]:
            writer.put(replies([request]))

    with _writer(store) as writer:
        writer.pending.update(keys(asked))
        writer.put(replies(asked[:1]))
        assert store.begun.wait(30)
        thread = threading.Thread(target=bring, args=(writer,))
        thread.start()
        store.may_end.set()
        thread.join()
    assert [key for batch in store.kept for key in batch] == keys(asked)
    assert max(map(len, store.kept)) <= 1 + asking.WAITING
    assert writer.pending == set()


def test_an_error_of_the_store_reaches_the_caller_and_blocks_nobody() -> None:
    store = Slow(InputError("generation store failed"))
    store.may_end.set()

    def bring(count: int) -> None:
        with _writer(store) as writer:
            for request in requests(count):
                writer.put(replies([request]))

    for count in (1, 100):
        with pytest.raises(InputError, match="generation store failed"):
            bring(count)
    assert store.kept == []
