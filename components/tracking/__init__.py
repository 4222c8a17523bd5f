"""Runs in MLflow; no other package writes to them."""

from components.core.system.errors import shown_address
from components.tracking.address import (
    find_experiment,
    in_store,
    make_client,
    nothing_tracked,
    store_folder,
    tracking_uri,
)
from components.tracking.errors import explained, reason_of
from components.tracking.relocation import STORE
from components.tracking.run import PARENT_RUN, RUN_FILE, TrackedRun, add_metrics, parent_run, tracked_run, training_run

__all__ = [
    "PARENT_RUN",
    "RUN_FILE",
    "STORE",
    "TrackedRun",
    "add_metrics",
    "explained",
    "find_experiment",
    "in_store",
    "make_client",
    "nothing_tracked",
    "parent_run",
    "reason_of",
    "shown_address",
    "store_folder",
    "tracked_run",
    "tracking_uri",
    "training_run",
]
