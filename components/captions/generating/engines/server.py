"""Engine `server`: any OpenAI-compatible server, with many requests in flight at once."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from threading import Thread
from typing import Any

from components.captions.generating.client import LlmClient, ServerOptions
from components.captions.generating.wire import Parameters, body_of
from components.captions.prompting.request import Reply, Request
from components.core.system.errors import InputError
from components.core.tables.files import content_hash

_LEAVE_WITHIN_S = 10.0


@dataclass(frozen=True)
class ServerEngine:
    """Sends requests to a server; connects at the first request."""

    options: ServerOptions

    @cached_property
    def _parameters(self) -> Parameters:
        """Those of all requests of a run."""
        return Parameters(self.options.extra, self.options.seeds)

    @cached_property
    def model(self) -> str:
        """Name and revision, and a hash of `extra`, which may change every answer."""
        revision = f"@{self.options.revision}" if self.options.revision else ""
        extra = json.dumps(self.options.extra, sort_keys=True)
        return self.options.model + revision + (f"+{content_hash(extra)[:8]}" if self.options.extra else "")

    def body(self, request: Request) -> tuple[str, dict[str, Any]]:
        """Path and JSON body of a request."""
        return body_of(request, self.options.model, self._parameters)

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield replies as they arrive, with at most `concurrency` requests in flight."""
        yield from replies_to(requests, self._connect, self.options.concurrency)

    def _connect(self) -> LlmClient:
        key = os.environ.get(self.options.api_key_env, "").strip()
        if not re.fullmatch(r"[\x21-\x7e]*", key):
            # An HTTP client would quote the whole header in its error.
            raise InputError(
                f"the environment variable {self.options.api_key_env} holds characters that no key has: set it again"
            )
        return LlmClient(self.options, key or None, parameters=self._parameters)


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


ENGINE = (ServerOptions, ServerEngine)
