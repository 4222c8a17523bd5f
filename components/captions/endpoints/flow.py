"""Many requests at once: a thread takes them, an event loop sends them, the caller fetches what has arrived."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any

from components.captions.endpoints.addresses import Endpoints
from components.captions.request import Reply, Request

_LEAVE_WITHIN_S = 10.0


@contextmanager
def flow(connect: Callable[[], Endpoints], slots: int, requests: Iterable[Request]) -> Iterator[Iterator[list[Reply]]]:
    """The batches of replies to `requests`; leaving the block cancels what is in flight.

    When one request ends the work, what is in flight has some seconds to arrive before that error is raised.
    Neither an iterator that blocks nor a slow caller holds up what is in flight.

    Args:
        connect: makes the endpoints; called when there is a request.
        slots: requests in flight; twice as many may be taken and not yet fetched.
        requests: taken lazily, in a thread of its own, one whenever a slot gets free.
    """
    with _event_loop() as loop:
        running = _Flow(loop, connect, slots)
        feeder = Thread(target=running.feed, args=(requests,), name="requests", daemon=True)
        feeder.start()
        try:
            yield running.batches()
        finally:
            running.stop()
            feeder.join(_LEAVE_WITHIN_S)
            asyncio.run_coroutine_threadsafe(running.leave(), loop).result()


class _Flow:
    """Requests on their way: taken by one thread, sent by an event loop, replies fetched by the caller."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connect: Callable[[], Endpoints], slots: int) -> None:
        self._loop = loop
        self._connect = connect
        self._endpoints: Endpoints | None = None
        self._slots = Semaphore(slots)
        self._unfetched = Semaphore(2 * slots)
        self._arrived: SimpleQueue[Reply | Exception | None] = SimpleQueue()
        self._stopped = Event()
        self._sent = 0

    def feed(self, requests: Iterable[Request]) -> None:
        """Take requests as slots get free, until there are no more or `stop` is called."""
        try:
            iterator = iter(requests)
            while True:
                self._unfetched.acquire()
                self._slots.acquire()
                request = None if self._stopped.is_set() else next(iterator, None)
                if request is None or self._stopped.is_set():
                    break
                self._endpoints = self._endpoints or self._connect()
                self._sent += 1
                asyncio.run_coroutine_threadsafe(self._send(self._endpoints, request), self._loop)
        except Exception as error:
            self._arrived.put(error)
        else:
            self._arrived.put(None)

    async def _send(self, endpoints: Endpoints, request: Request) -> None:
        try:
            self._arrived.put(await endpoints.reply(request))
        except Exception as error:
            self._arrived.put(error)
        finally:
            self._slots.release()

    def batches(self) -> Iterator[list[Reply]]:
        """Replies, each time as many as have arrived, until every request taken has one."""
        fetched, ended = 0, False
        while not (ended and fetched == self._sent):
            replies: list[Reply] = []
            fault: Exception | None = None
            for arrival in self._waiting():
                match arrival:
                    case Reply():
                        replies.append(arrival)
                    case None:
                        ended = True
                    case _:
                        fault = fault or arrival
            if replies:
                yield replies
                fetched += len(replies)
                self._unfetched.release(len(replies))
            if fault is not None:
                self.stop()
                asyncio.run_coroutine_threadsafe(_settled(), self._loop).result()
                arrived = [arrival for arrival in self._there() if isinstance(arrival, Reply)]
                if arrived:
                    yield arrived
                raise fault

    def _waiting(self) -> Iterator[Reply | Exception | None]:
        """Wait for an arrival, then give all that are there."""
        yield self._arrived.get()
        yield from self._there()

    def _there(self) -> Iterator[Reply | Exception | None]:
        while True:
            try:
                yield self._arrived.get_nowait()
            except Empty:
                return

    def stop(self) -> None:
        """Take no more requests."""
        self._stopped.set()
        self._unfetched.release()
        self._slots.release()

    async def leave(self) -> None:
        """Cancel what is in flight, then close the connections."""
        others = _others()
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._endpoints is not None:
            await self._endpoints.close()


def _others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def _settled() -> None:
    """Wait until nothing is in flight, but not for long."""
    if others := _others():
        await asyncio.wait(others, timeout=_LEAVE_WITHIN_S)


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="LLM servers", daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
