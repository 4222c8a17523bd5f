"""Keeps many requests to one server in flight, and yields their replies as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from itertools import islice
from threading import Thread

from components.captions.generating.client import LlmClient
from components.captions.prompting.request import Reply, Request

_LEAVE_WITHIN_S = 10.0


def replies_to(
    requests: Iterable[Request], connect: Callable[[], LlmClient], concurrency: int
) -> Iterator[list[Reply]]:
    """Yield replies in batches as they arrive; closing the iterator cancels requests in flight.

    When an error ends the work, requests in flight have some seconds to arrive before it is raised.
    """
    waiting = iter(requests)
    client: LlmClient | None = None
    pending: set[Future[Reply]] = set()
    error: BaseException | None = None
    with _event_loop() as loop:
        try:
            while error is None:
                try:
                    for request in islice(waiting, concurrency - len(pending)):
                        client = client or connect()
                        pending.add(asyncio.run_coroutine_threadsafe(client.reply(request), loop))
                except Exception as fault:
                    error = fault
                done, pending = wait(pending, None if error is None else _LEAVE_WITHIN_S, FIRST_COMPLETED)
                error = error or next(filter(None, (future.exception() for future in done)), None)
                if error is not None:
                    late, pending = wait(pending, _LEAVE_WITHIN_S)
                    done |= late
                if replies := [future.result() for future in done if future.exception() is None]:
                    yield replies
                elif error is None:
                    return
            raise error
        finally:
            asyncio.run_coroutine_threadsafe(_leave(client), loop).result()


async def _leave(client: LlmClient | None) -> None:
    """Cancel the requests in flight, then close the connections."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    if client is not None:
        await client.close()


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="LLM server", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
