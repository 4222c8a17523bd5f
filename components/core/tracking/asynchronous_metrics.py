"""Sends a run's metrics to MLflow from a background thread, so that training never waits for the server.

MLflow's own asynchronous logging is not used: it drops a batch when the server is unavailable for longer than the
client's retries, keeps no copy of it, and sends batches out of order.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from components.core.system.errors import shown_address
from components.core.system.retry import retrying
from components.core.tracking.address import tracking_uri
from components.core.tracking.errors import is_transient

if TYPE_CHECKING:
    from mlflow import MlflowClient


class AsynchronousMetrics:
    """Sends one run's batches of metrics in order, with retries while the server is unavailable."""

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self._client, self._run_id = client, run_id
        self._stopped = threading.Event()
        self._sender = ThreadPoolExecutor(1, "metrics")
        self._batches: deque[tuple[Sequence[Any], Future[None]]] = deque()

    def put(self, metrics: Sequence[Any]) -> None:
        """Queue up to 1,000 MLflow metrics and return at once; raises MlflowException if earlier ones were refused."""
        while self._batches and self._batches[0][1].done():
            self._batches.popleft()[1].result()
        self._batches.append((metrics, self._sender.submit(self._send, metrics)))

    def stop(self) -> list[Any]:
        """Stop sending; returns the metrics that the server has not accepted. Raises as `put`."""
        self._stopped.set()
        self._sender.shutdown(cancel_futures=True)
        left: list[Any] = []
        for metrics, sent in self._batches:
            error = None if sent.cancelled() else sent.exception()
            if error is not None and not is_transient(error):
                raise error
            if sent.cancelled() or error is not None:
                left += metrics
        return left

    def _send(self, metrics: Sequence[Any]) -> None:
        again = retrying(math.inf, is_transient, self._warning, first_s=1, longest_s=15, stopped=self._stopped)
        again(self._client.log_batch, self._run_id, metrics=metrics)

    def _warning(self, _error: BaseException) -> str:
        return f"{shown_address(tracking_uri())} does not answer: the metrics of run {self._run_id} wait"
