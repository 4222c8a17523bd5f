"""Threads that compute items ahead of the loop that consumes them; results come in order."""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_END: Any = object()
"""Marks the end of the items."""


def prefetched(produce: Callable[[threading.Event], Generator[T]], depth: int) -> Generator[T]:
    """The items of `produce`, made by a background thread at most `depth` items ahead of the current one.

    Errors of the thread are raised here. Closing the generator sets the event that `produce` gets, and waits for the
    end of the thread; `produce` should check the event during long work between two items.
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


def mapped(
    function: Callable[[T], R], items: Iterable[T], threads: int | None = None, per_thread: int = 4
) -> Generator[tuple[T, R]]:
    """Each item with `function(item)`, in order; `threads` (one per core) work up to `per_thread` items ahead each.

    An error of an item is raised in its turn. Closing the generator waits for started items and ends all threads.
    """
    threads = threads or os.cpu_count() or 1
    with ThreadPoolExecutor(threads, "ahead") as pool:
        try:
            yield from in_order(pool, function, items, per_thread * threads)
        finally:
            pool.shutdown(cancel_futures=True)


def in_order(pool: Executor, function: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[tuple[T, R]]:
    """Each item with `function(item)`, in order, while the pool works up to `ahead` items ahead."""
    running: deque[tuple[T, Future[R]]] = deque()
    for item in items:
        running.append((item, pool.submit(function, item)))
        if len(running) > ahead:
            done, future = running.popleft()
            yield done, future.result()
    for done, future in running:
        yield done, future.result()
