"""Sends a run's metrics to MLflow from a background thread, so that training never waits for the server.

MLflow's own asynchronous logging is not used: it drops a batch when the server is unavailable for longer than the
client's retries, and sends batches out of order.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from components.core.system.errors import shown_address
from components.core.system.retry import retrying
from components.tracking.address import tracking_uri
from components.tracking.errors import is_transient
from components.tracking.offline_spool import BATCH

if TYPE_CHECKING:
    from mlflow import MlflowClient


class AsynchronousMetrics:
    """A queue of one run's metrics and the thread that sends it in order, with retries while the server is unavailable.

    A metric that is sent twice is stored once: MLflow identifies it by run, name, step, time and value.
    """

    def __init__(self, client: MlflowClient, run_id: str) -> None:
        self._client = client
        self._run_id = run_id
        self._waiting: list[Any] = []
        self._changed = threading.Condition()
        self._giving_up = threading.Event()
        self._refusal: Exception | None = None
        self._sender: threading.Thread | None = None

    def put(self, metrics: Sequence[Any]) -> None:
        """Queue MLflow metrics and return at once; raises MlflowException if the server refused earlier ones."""
        self._raise_refusal()
        with self._changed:
            self._waiting += metrics
            if self._sender is None:
                self._sender = threading.Thread(target=self._send_all, name="metrics", daemon=True)
                self._sender.start()

    def drain(self, within_s: float) -> list[Any]:
        """Wait at most `within_s` seconds for the queue to be sent, then stop; returns the metrics that were not sent.

        Raises:
            MlflowException: the server refused metrics.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting, within_s)
            left = list(self._waiting)
        if left:
            self._giving_up.set()
        self._raise_refusal()
        return left

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal

    def _send_all(self) -> None:
        send = retrying(math.inf, is_transient, self._warning, first_s=1, longest_s=15, stopped=self._giving_up)
        while True:
            with self._changed:
                batch = self._waiting[:BATCH]
                if not batch or self._giving_up.is_set():
                    self._sender = None
                    return
            refusal = None
            try:
                send(self._client.log_batch, self._run_id, metrics=batch)
            except Exception as error:
                if is_transient(error):
                    continue
                refusal = error
            with self._changed:
                self._refusal = self._refusal or refusal
                del self._waiting[: len(batch)]
                self._changed.notify_all()

    def _warning(self, _error: BaseException) -> str:
        return f"{shown_address(tracking_uri())} does not answer: the metrics of run {self._run_id} wait"
