"""Splits metrics into requests of the size that MLflow accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from more_itertools import chunked

if TYPE_CHECKING:
    from mlflow import MlflowClient

MOST = 1000
"""Metrics that MLflow takes in one request."""


def log_metrics(client: MlflowClient, run_id: str, metrics: Sequence[Any]) -> None:
    """Log MLflow metrics into a run, however many there are.

    Raises:
        MlflowException: the server refused, or gave no answer.
    """
    for batch in chunked(metrics, MOST):
        client.log_batch(run_id, metrics=batch)
