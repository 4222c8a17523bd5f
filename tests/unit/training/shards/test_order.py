"""Which rank meets which sample when; work ahead keeps order, hands errors on, and leaves no thread behind."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.shards.reader import RawSample
from components.training.shards.order import ShardOrder, in_order, prefetched

PER_SHARD = 5


def _read(shard: str) -> Iterator[RawSample]:
    for number in range(PER_SHARD):
        yield RawSample(shard, str(number))


def _names(shards: int, count: int, *, buffer: int = 4, seed: int = 1, epoch: int = 0, world: World) -> list[str]:
    order = ShardOrder([f"{number}.tar" for number in range(shards)], _read, seed, buffer, world)
    return [sample.name for sample in islice(order.epoch(epoch), count)]


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 40), st.integers(0, 9), st.integers(0, 3))
def test_ranks_share_every_epoch_among_them(per_rank: int, ranks: int, buffer: int, seed: int, epoch: int) -> None:
    shards = per_rank * ranks
    lists = [
        _names(shards, per_rank * PER_SHARD, buffer=buffer, seed=seed, epoch=epoch, world=World(rank, ranks))
        for rank in range(ranks)
    ]
    seen = [name for names in lists for name in names]
    assert len(set(seen)) == len(seen) == shards * PER_SHARD


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    first = _names(6, 30, world=World())
    assert first == _names(6, 30, world=World())
    assert first != _names(6, 30, seed=2, world=World())
    assert first != _names(6, 30, epoch=1, world=World())
    assert sorted(first) == sorted(_names(6, 30, epoch=1, world=World()))


def test_the_buffer_mixes_samples_of_a_shard_and_of_neighbours() -> None:
    unmixed = _names(6, 30, buffer=0, world=World())
    assert [name.split("/")[1] for name in unmixed] == [str(number) for number in range(PER_SHARD)] * 6
    mixed = _names(6, 30, buffer=8, world=World())
    assert mixed != unmixed
    assert len({name.split("/")[0] for name in mixed[:PER_SHARD]}) > 1


def test_after_the_last_shard_comes_another_order_of_all() -> None:
    names = _names(4, 3 * 20, world=World())
    passes = [names[start : start + 20] for start in (0, 20, 40)]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    assert passes[0] != passes[1] != passes[2]


def test_a_rank_without_samples_is_told_and_does_not_wait() -> None:
    order = ShardOrder(["0.tar"], lambda _shard: iter(()), 1, 4, World())
    with pytest.raises(InputError, match="hold no samples"):
        next(order.epoch(0))


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("prefetch", "decode"))}


def _numbers(stop: threading.Event) -> Generator[int]:
    yield from range(5)


def test_items_come_in_order_to_the_end() -> None:
    assert list(prefetched(_numbers, 2)) == [0, 1, 2, 3, 4]
    assert not _threads()


def test_no_more_than_asked_for_is_made_ahead() -> None:
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


def test_closing_ends_a_producer_that_waits_and_runs_its_clean_up() -> None:
    cleaned = threading.Event()

    def produce(stop: threading.Event) -> Generator[int]:
        try:
            while True:
                yield 0
        finally:
            cleaned.set()

    items = prefetched(produce, 1)
    next(items)
    items.close()
    assert cleaned.is_set()
    assert not _threads()


def test_closing_reaches_a_producer_that_works_without_yielding() -> None:
    def produce(stop: threading.Event) -> Generator[int]:
        yield 0
        stop.wait()

    items = prefetched(produce, 1)
    next(items)
    items.close()
    assert not _threads()


def test_an_error_comes_after_the_items_before_it() -> None:
    def produce(stop: threading.Event) -> Generator[int]:
        yield 1
        raise RuntimeError("in the thread")

    items = prefetched(produce, 4)
    assert next(items) == 1
    with pytest.raises(RuntimeError, match="in the thread"):
        next(items)
    assert not _threads()


def test_a_generator_that_is_never_read_starts_no_thread() -> None:
    prefetched(_numbers, 2)
    assert not _threads()


def test_a_pool_keeps_the_order_and_looks_only_so_far_ahead() -> None:
    taken: list[int] = []

    def items() -> Generator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(3) as pool:
        results = in_order(pool, lambda number: number * number, items(), 4)
        assert next(results) == (0, 0)
        assert taken == [0, 1, 2, 3, 4]
        assert list(results) == [(number, number * number) for number in range(1, 20)]
