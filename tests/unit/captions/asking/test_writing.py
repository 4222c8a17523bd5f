"""Replies are stored in order, together where they wait, and never forgotten when something fails."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from components.captions.asking import writing
from components.captions.asking.writing import Writer
from components.captions.request import Reply, Request, Sampling
from components.core.errors import InputError

SAMPLING = Sampling(1.0, 0.1, 40)


def _reply(number: int) -> Reply:
    return Reply(Request("paraphrase_1", (("user", str(number)),), "m", SAMPLING, 0), f"answer {number}")


class Slow:
    """A store whose first transaction takes until it is told to end."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.kept: list[list[str | None]] = []
        self.begun, self.may_end, self.fault = threading.Event(), threading.Event(), fault

    def add(self, replies: Sequence[Reply]) -> None:
        self.begun.set()
        assert self.may_end.wait(30)
        if self.fault is not None:
            raise self.fault
        self.kept.append([reply.answer for reply in replies])


def test_what_waits_is_kept_together_in_order_and_told_of_afterwards() -> None:
    assert writing.WAITING == 2
    store, told = Slow(), []
    with Writer(store, lambda replies: told.append([reply.answer for reply in replies])) as writer:
        writer.put([_reply(0)])
        assert store.begun.wait(30)
        writer.put([_reply(1), _reply(2)])
        writer.put([_reply(3)])
        assert told == []
        store.may_end.set()
    assert store.kept == told == [["answer 0"], ["answer 1", "answer 2", "answer 3"]]


def test_a_transaction_has_an_end() -> None:
    store = Slow()

    def bring(writer: Writer) -> None:
        for number in range(1, 10):
            writer.put([_reply(number)])

    with Writer(store, len) as writer:
        writer.put([_reply(0)])
        assert store.begun.wait(30)
        thread = threading.Thread(target=bring, args=(writer,))
        thread.start()
        store.may_end.set()
        thread.join()
    assert [answer for group in store.kept for answer in group] == [f"answer {number}" for number in range(10)]
    assert max(map(len, store.kept)) <= 1 + writing.WAITING


def test_a_store_that_fails_is_told_of_to_whoever_brings_more_and_lets_nobody_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "WAITING", 1)
    store = Slow(InputError("generation store failed"))
    store.may_end.set()

    def bring() -> None:
        with Writer(store, len) as writer:
            for number in range(100):
                writer.put([_reply(number)])

    with pytest.raises(InputError, match="generation store failed"):
        bring()
    assert store.kept == []


def test_a_fault_at_the_very_end_is_not_overheard() -> None:
    store = Slow(InputError("generation store failed"))
    store.may_end.set()
    with pytest.raises(InputError, match="generation store failed"), Writer(store, len) as writer:
        writer.put([_reply(0)])


def test_what_arrived_before_an_engine_failed_is_kept_and_its_fault_comes_first() -> None:
    store = Slow()
    store.may_end.set()

    def engine() -> None:
        with Writer(store, len) as writer:
            writer.put([_reply(0)])
            raise RuntimeError("engine")

    with pytest.raises(RuntimeError, match="engine"):
        engine()
    assert store.kept == [["answer 0"]]
