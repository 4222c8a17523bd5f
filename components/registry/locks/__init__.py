"""One promotion at a time: a lock of the kind that the registry's store has."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from typing import TYPE_CHECKING

from components.registry.locks.lock import Asked, BusyError, Lock
from components.tracking import tracking_uri

if TYPE_CHECKING:
    from mlflow import MlflowClient

__all__ = ["BusyError", "Lock", "held"]

_KINDS = {"sqlite": "file", "postgresql": "database"}
"""Scheme of the store's address -> the module here; every other store, a server above all, has tickets."""


def held(client: MlflowClient, model: str, purpose: str, run_id: str) -> AbstractContextManager[Lock]:
    """Keep every other promotion and rollback of `model`, on this host or another, out of the block.

    Args:
        purpose: what this process wants to do, for those that are kept out.
        run_id: a run of the store that this is about.

    Raises:
        BusyError: another process has the lock; the message names it.
        InputError: the lock cannot be asked for.
    """
    uri = os.environ.get("MLFLOW_REGISTRY_URI") or tracking_uri()
    scheme = uri.partition(":")[0].partition("+")[0]
    take: Callable[[Asked], AbstractContextManager[Lock]]
    take = import_module(f"{__name__}.{_KINDS.get(scheme, 'tickets')}").take
    who = f"{purpose} by process {os.getpid()} on {socket.gethostname()}"
    return take(Asked(client, uri, model, who, run_id))
