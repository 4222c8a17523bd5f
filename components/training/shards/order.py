"""In which order a rank meets the samples of an epoch, and work ahead of the reader that keeps it."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

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


T = TypeVar("T")
R = TypeVar("R")

_END: Any = object()
"""What stands behind the last item."""


def prefetched(produce: Callable[[threading.Event], Generator[T]], depth: int) -> Generator[T]:
    """What `produce` yields, made by a background thread at most `depth` items ahead of the one at hand.

    Errors of the thread are raised here. Closing the generator sets the event that `produce` was given, waits for
    it to end, and leaves no thread behind; `produce` should look at the event where it works long without yielding.
    """
    stop = threading.Event()
    with closing(produce(stop)) as produced, ThreadPoolExecutor(1, "prefetch") as pool:
        made = in_order(pool, lambda _: next(produced, _END), itertools.repeat(None), depth + 1)
        try:
            for _, item in made:
                if item is _END:
                    return
                yield item
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


def in_order(
    pool: ThreadPoolExecutor, function: Callable[[T], R], items: Iterable[T], ahead: int
) -> Iterator[tuple[T, R]]:
    """Each item with `function` of it, in order, while the pool works up to `ahead` items further on."""
    running: deque[tuple[T, Future[R]]] = deque()
    for item in items:
        running.append((item, pool.submit(function, item)))
        if len(running) > ahead:
            done, future = running.popleft()
            yield done, future.result()
    for done, future in running:
        yield done, future.result()
