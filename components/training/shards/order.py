"""In which order a rank meets the samples of an epoch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from components.core.compute.distributed import World
from components.core.errors import InputError
from components.core.shards.reader import RawSample


@dataclass(frozen=True)
class ShardOrder:
    """Shards permuted, shared among the ranks, read one after the other, and mixed in a buffer.

    Attributes:
        shards: paths or URLs of all of them.
        read: gives a shard's samples.
        buffer: how many samples wait to be drawn from; their encoded bytes are in memory.
    """

    shards: list[str]
    read: Callable[[str], Iterator[RawSample]]
    seed: int
    buffer: int
    world: World

    def epoch(self, epoch: int) -> Generator[RawSample]:
        """This rank's samples without end: when its shards are used up, it goes on with its share of another order.

        Raises:
            InputError: there is not one sample in this rank's shards.
        """
        for again in itertools.count():
            order = np.random.default_rng([self.seed, epoch, again]).permutation(len(self.shards))
            own = [self.shards[index] for index in order[self.world.rank :: self.world.size]]
            rng = np.random.default_rng([self.seed, epoch, again, self.world.rank + 1])
            found = False
            for sample in self._mixed(itertools.chain.from_iterable(map(self.read, own)), rng):
                found = True
                yield replace(sample, again=again)
            if not found:
                raise InputError(f"shard {own[0]} and the rest of rank {self.world.rank}'s hold no samples")

    def _mixed(self, samples: Iterable[RawSample], rng: np.random.Generator) -> Iterator[RawSample]:
        waiting: list[RawSample] = []
        for sample in samples:
            if len(waiting) < self.buffer:
                waiting.append(sample)
                continue
            place = int(rng.integers(len(waiting) + 1))
            if place < len(waiting):
                sample, waiting[place] = waiting[place], sample  # noqa: PLW2901
            yield sample
        for place in rng.permutation(len(waiting)):
            yield waiting[place]
