"""Work ahead keeps order, hands errors on, and leaves no thread behind."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest

from components.core.tables.ahead import in_order, mapped, prefetched


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("prefetch", "ahead"))}


def test_items_come_in_order_and_an_error_after_the_items_before_it() -> None:
    def produce(stop: threading.Event) -> Generator[int]:
        yield from range(5)
        raise RuntimeError("in the thread")

    items = prefetched(produce, 2)
    assert list(islice(items, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="in the thread"):
        next(items)
    assert not _threads()


def test_a_limited_number_of_items_is_made_ahead() -> None:
    made: list[int] = []
    third = threading.Event()

    def produce(stop: threading.Event) -> Generator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                third.set()
            yield number

    items = prefetched(produce, 2)
    assert next(items) == 0
    assert third.wait(10)
    assert not threading.Event().wait(0.3)
    assert made == [0, 1, 2, 3]
    items.close()


@pytest.mark.parametrize("yielded", [1, 1_000_000], ids=["waits for the event", "waits for its reader"])
def test_closing_ends_a_producer_and_runs_its_clean_up(yielded: int) -> None:
    cleaned = threading.Event()

    def produce(stop: threading.Event) -> Generator[int]:
        try:
            yield from range(yielded)
            stop.wait()
        finally:
            cleaned.set()

    items = prefetched(produce, 1)
    next(items)
    items.close()
    assert cleaned.is_set()
    assert not _threads()


def test_pools_keep_the_order_look_a_limited_number_ahead_and_leave_no_thread() -> None:
    taken, before = list[int](), _threads()

    def items() -> Generator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(3) as pool:
        results = in_order(pool, lambda number: number * number, items(), 4)
        assert next(results) == (0, 0)
        assert taken == [0, 1, 2, 3, 4]
        assert list(results) == [(number, number * number) for number in range(1, 20)]
    found = mapped(lambda number: number * number, iter(range(1000)), 2)
    assert list(islice(found, 3)) == [(0, 0), (1, 1), (2, 4)]
    found.close()
    assert _threads() == before
    with pytest.raises(ZeroDivisionError):
        list(mapped(lambda number: 1 // number, [2, 1, 0], 2))
