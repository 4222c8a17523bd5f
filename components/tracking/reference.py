"""Logs the evaluation of an encoder into the MLflow run that trained it, after that run has ended."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.core.system.errors import InputError
from components.tracking import offline_spool
from components.tracking.address import make_client, tracking_uri
from components.tracking.errors import SOON_S, fail_fast, is_transient, reason_of, shown_address

RUN_FILE = "run.json"
"""File in an encoder's folder: `TrackedRun.reference` of the run that trained it."""
_LOG = logging.getLogger(__name__)


def training_run(encoder: Path) -> str:
    """The id of the run that trained the encoder in a folder; empty if there is none."""
    try:
        return str(json.loads((encoder / RUN_FILE).read_text("utf-8"))["run_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def add_metrics(
    encoder: Path, metrics: Mapping[str, float], tables: Mapping[str, Mapping[str, list[Any]]] | None = None
) -> None:
    """Log an encoder's evaluation into the run that trained it, so that MLflow can compare methods.

    If the server is unavailable, the metrics are written to the spool. Nothing is logged for an encoder without
    `run.json`, or if the store does not have its run; the results on disk are enough.

    Args:
        tables: name -> column -> values, for MLflow's view of tables; a table that the run already has is not replaced.
    """
    from mlflow.entities import Metric
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode
    from mlflow.utils.time import get_current_time_millis

    run_id = training_run(encoder)
    if not run_id:
        return
    now = get_current_time_millis()
    batch = [Metric(name, float(value), now, 0) for name, value in metrics.items()]
    where = shown_address(tracking_uri())
    try:
        with fail_fast(SOON_S):
            client = make_client()
            offline_spool.log_metrics(client, run_id, batch)
            existing = {artifact.path for artifact in client.list_artifacts(run_id)} if tables else set()
            for name, table in (tables or {}).items():
                if f"{name}.json" not in existing:
                    client.log_table(run_id, dict(table), f"{name}.json")
    except (MlflowException, InputError) as error:
        if isinstance(error, InputError) or is_transient(error):
            path = offline_spool.keep(run_id, batch, [])
            _LOG.warning(
                "%s is unavailable: the evaluation of %s waits in %s; the next run sends it", where, encoder, path
            )
        elif error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            _LOG.warning("%s refuses the evaluation of %s (%s)", where, encoder, reason_of(error))
