"""Embeds the texts of many requests in batches: the requests that wait during one batch form the next one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from components.serving.address import ServingLimits
from components.serving.messages import ApiError, EmbeddingRequest, EncodeResponse
from components.serving.metrics import Metrics
from components.serving.served import Served

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class _Waiting:
    request: EmbeddingRequest
    future: asyncio.Future[EncodeResponse]


class Batcher:
    """A thread that embeds batches of requests, which an event loop submits.

    Args:
        served: the first version; if the attribute is replaced, the new version embeds the next batch.
    """

    def __init__(self, served: Served, limits: ServingLimits, metrics: Metrics) -> None:
        self.served = served
        self._limits, self._metrics = limits, metrics
        self._queue: deque[_Waiting] = deque()
        self._texts = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="embed", daemon=True)
        metrics.queue.set_function(lambda: self._texts)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Embed the waiting requests, then end; blocks until then."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, request: EmbeddingRequest) -> asyncio.Future[EncodeResponse]:
        """Queue a request; cancelling the future drops the request if it still waits.

        The future raises `ApiError` if the served version does not support the request, or fails.

        Raises:
            ApiError: the queue is full, or the server is stopping.
        """
        waiting = _Waiting(request, asyncio.get_running_loop().create_future())
        texts = len(request.texts)
        with self._changed:
            if self._stopping:
                raise ApiError(503, "The server is stopping.", "stopping", retry_after=1)
            if self._texts + texts > self._limits.queue:
                raise ApiError(429, "The server is overloaded: try again later.", "overloaded", retry_after=1)
            self._queue.append(waiting)
            self._texts += texts
            self._changed.notify()
        waiting.future.add_done_callback(lambda future: self._drop(waiting) if future.cancelled() else None)
        return waiting.future

    def _drop(self, waiting: _Waiting) -> None:
        self._metrics.dropped.inc()
        with self._changed:
            if waiting in self._queue:
                self._queue.remove(waiting)
                self._texts -= len(waiting.request.texts)

    def _work(self) -> None:
        while batch := self._next():
            results = _results(self.served, [waiting.request for waiting in batch])
            if texts := sum(len(result.vectors) for result in results if isinstance(result, EncodeResponse)):
                self._metrics.batches.observe(texts)
                self._metrics.texts.inc(texts)
            # Once per batch: waking the event loop costs as much as a response.
            batch[0].future.get_loop().call_soon_threadsafe(_deliver, batch, results)

    def _next(self) -> list[_Waiting]:
        """The requests of the next batch, oldest first; empty when the server stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._stopping)
            batch, texts = list[_Waiting](), 0
            while self._queue and (not batch or texts + len(self._queue[0].request.texts) <= self._limits.batch):
                batch.append(self._queue.popleft())
                texts += len(batch[-1].request.texts)
            self._texts -= texts
            return batch


def _results(served: Served, requests: Sequence[EmbeddingRequest]) -> list[EncodeResponse | ApiError]:
    """A response or an error for each request."""
    errors = [served.unsupported(request) for request in requests]
    supported = [request for request, error in zip(requests, errors, strict=True) if error is None]
    embedded = iter(_embed(served, supported))
    return [next(embedded) if error is None else error for error in errors]


def _embed(served: Served, requests: Sequence[EmbeddingRequest]) -> list[EncodeResponse | ApiError]:
    try:
        return list(served.embed(requests)) if requests else []
    except Exception:
        # A request that fails must not affect the other requests of the batch.
        if len(requests) > 1:
            return [result for request in requests for result in _embed(served, [request])]
        _LOG.exception("a request failed")
        return [ApiError(500, "The server failed to answer.", "internal_error")]


def _deliver(batch: Sequence[_Waiting], results: Sequence[EncodeResponse | ApiError]) -> None:
    for waiting, result in zip(batch, results, strict=True):
        if waiting.future.done():
            continue
        if isinstance(result, EncodeResponse):
            waiting.future.set_result(result)
        else:
            waiting.future.set_exception(result)
