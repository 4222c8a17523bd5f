"""Sends the metrics of a run to MLflow from a thread of its own, so that training never waits for the server.

Own code beside MLflow's asynchronous logging, whose queue is lost with the process.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from components.core.retry import retrying
from components.tracking.address import tracking_uri
from components.tracking.batches import MOST
from components.tracking.errors import shown_address
from components.tracking.retry_policy import is_transient

if TYPE_CHECKING:
    from mlflow import MlflowClient


class AsynchronousMetrics:
    """Sends the metrics of one run from a thread of its own, in order, again and again while the server is away.

    Sending a metric twice is no harm: MLflow knows it by run, name, step, time and value.
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
        """Take MLflow metrics and return at once.

        Raises:
            MlflowException: the server refused metrics that were put before.
        """
        self._raise_refusal()
        with self._changed:
            self._waiting += metrics
            if self._sender is None:
                self._sender = threading.Thread(target=self._send_all, name="metrics", daemon=True)
                self._sender.start()

    def drain(self, within_s: float) -> list[Any]:
        """Wait until all is sent; returns what the server did not take in that time, and stops sending.

        Raises:
            MlflowException: the server refused metrics.
        """
        end = time.monotonic() + within_s
        with self._changed:
            while self._waiting and (remaining := end - time.monotonic()) > 0:
                self._changed.wait(remaining)
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
        while batch := self._next():
            refusal = None
            try:
                self._send(batch)
            except Exception as error:
                if is_transient(error):
                    continue
                refusal = error
            with self._changed:
                self._refusal = self._refusal or refusal
                del self._waiting[: len(batch)]
                self._changed.notify_all()

    def _next(self) -> list[Any]:
        """What is to be sent next; nothing ends the thread, and the next `put` starts another."""
        with self._changed:
            batch = [] if self._giving_up.is_set() else self._waiting[:MOST]
            if not batch:
                self._sender = None
            return batch

    def _send(self, batch: list[Any]) -> None:
        again = retrying(math.inf, is_transient, self._told, first_s=1, longest_s=15, stopped=self._giving_up)
        again(self._client.log_batch, self._run_id, metrics=batch)

    def _told(self, _error: BaseException) -> str:
        return f"{shown_address(tracking_uri())} does not answer: the metrics of run {self._run_id} wait"
