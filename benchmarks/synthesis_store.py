"""The cost of the generation store for a run: time inside its calls, and the whole run's time with and without it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from more_itertools import batched

from benchmarks.synthesis_servers import requests
from components.captions.generating.asking import ask
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request

T = TypeVar("T")


@dataclass(frozen=True)
class SteadyEngine:
    """Answers so many rows per second in this thread, in batches, whatever happens between them."""

    rate: float
    batch: int
    model: str = "steady"

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Sleep as long as the batch takes, then yield it."""
        for batch in batched(requests, self.batch):
            time.sleep(len(batch) / self.rate)
            yield [Reply(request, f"a reworded caption, {request.key}") for request in batch]


class TimedStore:
    """A store that adds up the time inside its calls, in `seconds` by kind of call."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def answers(self, keys: Iterable[str]) -> dict[str, str]:
        """See the store."""
        return self._timed("look-ups", lambda: self._store.answers(keys))

    def add(self, replies: Sequence[Reply]) -> None:
        """See the store."""
        self._timed("commits", lambda: self._store.add(replies))

    def _timed(self, kind: str, operation: Callable[[], T]) -> T:
        start = time.perf_counter()
        try:
            return operation()
        finally:
            self.seconds[kind] += time.perf_counter() - start


class NoStore:
    """Stores nothing."""

    def answers(self, _keys: Iterable[str]) -> dict[str, str]:
        """None."""
        return {}

    def add(self, _replies: Sequence[Reply]) -> None:
        """Forget them."""


@dataclass(frozen=True)
class Overhead:
    """Seconds of the same run with and without a store, and the seconds inside the store's calls, in any thread."""

    with_store: float
    without_store: float
    inside: dict[str, float]

    @property
    def share(self) -> float:
        """Of the wall time, the part that the store adds."""
        return 1 - self.without_store / self.with_store

    @property
    def busy_share(self) -> float:
        """Of the wall time, what passed inside the store's calls, most of it while the engine worked on."""
        return sum(self.inside.values()) / self.with_store


def measure_store(url: str, rows: int, rate: float, batch: int) -> Overhead:
    """Run new questions through the stage's core, with a new store at `url` and with none."""
    engine = SteadyEngine(rate, batch)
    without = _run(NoStore(), engine, rows, "no store")
    store = GenerationStore(url)
    try:
        timed = TimedStore(store)
        seconds = _run(timed, engine, rows, url.partition(":")[0])
        if store.count() != rows:
            raise RuntimeError(f"of {rows} answers, {store.count()} were stored")
    finally:
        store.close()
    return Overhead(seconds, without, dict(timed.seconds))


def _run(store: Any, engine: SteadyEngine, rows: int, title: str) -> float:
    requested = requests(rows, engine.model)
    # Hashed once and then remembered, so not a part of the comparison.
    keys = {request.key for request in requested}
    start = time.perf_counter()
    done = ask(store, engine, requested, title, rows)
    seconds = time.perf_counter() - start
    if done.generated != len(keys):
        raise RuntimeError(f"of {len(keys)} questions, {done.generated} were generated")
    return seconds
