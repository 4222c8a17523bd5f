"""Which rank meets which sample when."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.shards.reader import RawSample
from components.training.shards.order import ShardOrder

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
