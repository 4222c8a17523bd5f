"""Runs in MLflow; no other package writes to them."""

import os

from components.core.tracking.address import (
    STORE,
    find_experiment,
    in_store,
    make_client,
    nothing_tracked,
    store_folder,
    tracking_uri,
)
from components.core.tracking.errors import explained, reason_of
from components.core.tracking.run import (
    PARENT_RUN,
    RUN_FILE,
    TrackedRun,
    add_metrics,
    parent_run,
    tracked_run,
    training_run,
)

# MLflow reads it at its import, which follows this in all of the product; it ignores DO_NOT_TRACK=1.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

__all__ = [
    "PARENT_RUN", "RUN_FILE", "STORE", "TrackedRun", "add_metrics", "explained", "find_experiment", "in_store",
    "make_client", "nothing_tracked", "parent_run", "reason_of", "store_folder", "tracked_run", "tracking_uri",
    "training_run",
]  # fmt: skip
