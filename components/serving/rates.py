"""How often each client may ask: a bucket of tokens for each."""

from __future__ import annotations

import time
from collections.abc import Callable

from cachetools import LRUCache

_CLIENTS = 10_000
"""Clients that are remembered; one that was forgotten starts anew."""


class Rates:
    """A bucket for each client that fills steadily and from which each request takes one.

    Args:
        rate: requests per second; 0 for no limit.
        burst: how many requests a full bucket has, as seconds of the rate.
        clock: seconds since any time.
    """

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._full, self._clock = rate, max(1.0, rate * burst), clock
        self._buckets: LRUCache[str, tuple[float, float]] = LRUCache(_CLIENTS)

    def wait(self, client: str) -> float:
        """Take one from a client's bucket; 0, or how many seconds the client must wait because there is none."""
        if not self._rate:
            return 0.0
        now = self._clock()
        left, before = self._buckets.get(client, (self._full, now))
        left = min(self._full, left + (now - before) * self._rate)
        self._buckets[client] = (left - 1 if left >= 1 else left, now)
        return 0.0 if left >= 1 else (1 - left) / self._rate
