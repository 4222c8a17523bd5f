"""One promotion at a time where the registry's store has a lock: a file beside SQLite, PostgreSQL's advisory lock.

Any other store, an MLflow server above all, has none: there nobody is kept out, and a promotion that finds another
champion than the one it judged against, looked up again right before it moves the aliases, is refused. Two that look in
the same instant both say that they won, and the later one is champion.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module

from components.registry.locks.lock import Asked, BusyError, Lock
from components.tracking import tracking_uri

__all__ = ["BusyError", "Lock", "held"]

_KINDS = {"sqlite": "file", "postgresql": "database"}
"""Scheme of the store's address -> the module here."""


def held(model: str, purpose: str) -> AbstractContextManager[Lock]:
    """Keep every other promotion and rollback of `model` out of the block, as far as the store can.

    Args:
        purpose: what this process wants to do, for those that are kept out.

    Raises:
        BusyError: another process has the lock; the message names it.
        InputError: the lock cannot be asked for.
    """
    uri = os.environ.get("MLFLOW_REGISTRY_URI") or tracking_uri()
    scheme = uri.partition(":")[0].partition("+")[0]
    if scheme not in _KINDS:
        return nullcontext(Lock(confirm=lambda: None))
    take: Callable[[Asked], AbstractContextManager[Lock]] = import_module(f"{__name__}.{_KINDS[scheme]}").take
    who = f"{purpose} by process {os.getpid()} on {socket.gethostname()}"
    return take(Asked(uri, model, who))
