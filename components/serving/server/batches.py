"""Embeds the texts of many requests in batches, which are counted: those that wait during one batch form the next.

One thread makes the tokens of new requests while another embeds a batch. The event loop does neither: hostile texts
take a twentieth of a second each to tokenize.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from components.serving.server.address import ServingLimits
from components.serving.server.messages import ApiError, EmbeddingRequest, EncodeResponse
from components.serving.server.served import Served, TextTokens

_LOG = logging.getLogger(__name__)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Counters of one server, in a separate registry."""

    def __init__(self) -> None:
        self.registry = own = CollectorRegistry()
        route_status, model = ("route", "status"), ("model", "sha256", "image_tower_sha256")
        seconds = "Seconds from a request's head to the end of its response, for embedded texts."
        dropped = "Requests whose client disconnected before the response."
        refused = "1 while the alias points at a version that is not served."
        self.requests = Counter("cliptune_requests", "Requests by route and status.", route_status, registry=own)
        self.seconds = Histogram("cliptune_request_seconds", seconds, buckets=_SECONDS, registry=own)
        self.batches = Histogram("cliptune_batch_texts", "Texts of a batch.", buckets=_TEXTS, registry=own)
        self.texts = Counter("cliptune_texts", "Embedded texts.", registry=own)
        self.one_word = Counter("cliptune_one_word_texts", "Texts of one word.", registry=own)
        self.dropped = Counter("cliptune_dropped_requests", dropped, registry=own)
        self.queue = Gauge("cliptune_queue_texts", "Waiting texts.", registry=own)
        self.failures = Counter(
            "cliptune_model_load_failures", "New versions that were not served, by reason.", ("reason",), registry=own
        )
        self.refused = Gauge("cliptune_model_refused", refused, ("alias",), registry=own)
        self._model = Gauge("cliptune_model_info", "The served version.", model, registry=own)

    def serves(self, served: Served) -> None:
        """Set the served version."""
        self._model.clear()
        self._model.labels(served.id, served.sha256, served.image_tower_sha256).set(1)


@dataclass(frozen=True, eq=False)
class _Waiting:
    request: EmbeddingRequest
    served: Served
    future: asyncio.Future[EncodeResponse]
    tokens: dict[str, TextTokens] = field(default_factory=dict)


class Batcher:
    """Two threads that tokenize and embed requests, which an event loop submits.

    Args:
        served: the first version; if the attribute is replaced, the new version embeds the requests from then on.
        challenger: a second version, for requests that name it; replaced in the same way.
    """

    def __init__(
        self, served: Served, limits: ServingLimits, metrics: Metrics, challenger: Served | None = None
    ) -> None:
        self.served, self.challenger = served, challenger
        self._limits, self._metrics = limits, metrics
        self._queue: deque[_Waiting] = deque()
        self._texts = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._tokenizing = ThreadPoolExecutor(1, "tokenize")
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
        self._tokenizing.shutdown()

    @property
    def all(self) -> list[Served]:
        """The served version, and the challenger if there is one."""
        return [self.served] if self.challenger is None else [self.served, self.challenger]

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, request: EmbeddingRequest) -> asyncio.Future[EncodeResponse]:
        """Queue a request; cancelling the future drops the request if it still waits.

        The future raises `ApiError` if the served version does not support the request, or fails.

        Raises:
            ApiError: the queue is full, or the server is stopping.
        """
        chosen = next((one for one in self.all if request.model in one.names), self.served)
        waiting = _Waiting(request, chosen, asyncio.get_running_loop().create_future())
        texts = len(request.texts)
        with self._changed:
            if self._stopping:
                raise ApiError(503, "The server is stopping.", "stopping", retry_after=1)
            if self._texts + texts > self._limits.queue:
                raise ApiError(429, "The server is overloaded: try again later.", "overloaded", retry_after=1)
            self._texts += texts
            self._tokenizing.submit(self._tokenize, waiting)
        waiting.future.add_done_callback(lambda future: self._drop(waiting) if future.cancelled() else None)
        return waiting.future

    def _tokenize(self, waiting: _Waiting) -> None:
        # A text that fails here fails again when it is embedded, and its client gets the error then.
        with suppress(Exception):
            waiting.tokens.update(waiting.served.tokens(waiting.request))
        with self._changed:
            if waiting.future.cancelled():
                self._texts -= len(waiting.request.texts)
            else:
                self._queue.append(waiting)
            self._changed.notify()

    def _drop(self, waiting: _Waiting) -> None:
        self._metrics.dropped.inc()
        with self._changed:
            if waiting in self._queue:
                self._queue.remove(waiting)
                self._texts -= len(waiting.request.texts)
                self._changed.notify()

    def _work(self) -> None:
        while batch := self._next():
            results = _results(batch)
            vectors = [one for result in results if isinstance(result, EncodeResponse) for one in result.vectors]
            if vectors:
                self._metrics.batches.observe(len(vectors))
                self._metrics.texts.inc(len(vectors))
                words = (len(text.split()) for waiting in batch for text in waiting.request.texts)
                self._metrics.one_word.inc(sum(count == 1 for count in words))
            # Once per batch: waking the event loop costs as much as a response.
            batch[0].future.get_loop().call_soon_threadsafe(_deliver, batch, results)

    def _next(self) -> list[_Waiting]:
        """The requests of the next batch, oldest first and of one version; empty when the server stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or (self._stopping and not self._texts))
            batch, texts = list[_Waiting](), 0
            while self._queue and (not batch or self._fits(batch[0], texts)):
                batch.append(self._queue.popleft())
                texts += len(batch[-1].request.texts)
            self._texts -= texts
            return batch

    def _fits(self, first: _Waiting, texts: int) -> bool:
        following = self._queue[0]
        return following.served is first.served and texts + len(following.request.texts) <= self._limits.batch


def _results(batch: Sequence[_Waiting]) -> list[EncodeResponse | ApiError]:
    """A response or an error for each request."""
    errors = [waiting.served.unsupported(waiting.request) for waiting in batch]
    supported = [waiting for waiting, error in zip(batch, errors, strict=True) if error is None]
    embedded = iter(_embed(supported))
    return [next(embedded) if error is None else error for error in errors]


def _embed(batch: Sequence[_Waiting]) -> list[EncodeResponse | ApiError]:
    try:
        tokens = {text: one for waiting in batch for text, one in waiting.tokens.items()}
        return list(batch[0].served.embed([waiting.request for waiting in batch], tokens)) if batch else []
    except Exception:
        # A request that fails must not affect the other requests of the batch.
        if len(batch) > 1:
            return [result for waiting in batch for result in _embed([waiting])]
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
