"""Requests on their way: the one that ends the work does not take the others' answers with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from components.captions.endpoints.flow import flow
from components.captions.request import Reply, Request, Sampling
from components.core.errors import InputError


class Server:
    """Denies the first request when it has all three, and then answers the others."""

    def __init__(self) -> None:
        self._all, self._denied, self._waiting = asyncio.Event(), asyncio.Event(), 0

    async def reply(self, request: Request) -> Reply:
        if request.attempt == 0:
            await self._all.wait()
            self._denied.set()
            raise InputError("another key")
        self._waiting += 1
        if self._waiting == 2:
            self._all.set()
        await self._denied.wait()
        await asyncio.sleep(0.01)
        return Reply(request, "A dog.")

    async def close(self) -> None:
        """Nothing is open."""


def test_what_is_in_flight_arrives_before_the_error_that_ends_the_work() -> None:
    made: Any = Server
    requests = [Request("rewrite", (("user", "a dog"),), "fake", Sampling(1.0, 0.1, 40), n) for n in range(3)]
    with flow(made, 3, requests) as batches:
        assert {reply.request.attempt for reply in next(batches)} == {1, 2}
        with pytest.raises(InputError, match="another key"):
            next(batches)
