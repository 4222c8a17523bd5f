"""Work ahead of the reader: in a background thread, and in a pool with the order kept."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")

_LOOK_UP = 0.1


class _End(Generic[T]):
    """The last thing in the queue: the iterator is exhausted, or failed with `error`."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


def prefetched(produce: Callable[[threading.Event], Generator[T]], depth: int) -> Generator[T]:
    """What `produce` yields, made by a background thread at most `depth` items ahead.

    Errors of the thread are raised here. Closing the generator sets the event that `produce` was given, waits for
    it to end, and leaves no thread behind; `produce` should look at the event where it works long without yielding.
    """
    items: queue.Queue[T | _End[T]] = queue.Queue(depth)
    stop = threading.Event()

    def put(item: T | _End[T]) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                items.put(item, timeout=_LOOK_UP)
                return

    def work() -> None:
        error = None
        try:
            with closing(produce(stop)) as produced:
                for item in produced:
                    put(item)
                    if stop.is_set():
                        break
        except BaseException as raised:
            error = raised
        put(_End(error))

    thread = threading.Thread(target=work, name="prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(item := items.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stop.set()
        thread.join()


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
