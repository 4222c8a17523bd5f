"""Allows one promotion or rollback of a model at a time on one machine.

Machines that share an MLflow server are not locked out: `promotion` therefore checks right before it moves an alias
that the champion is still the version that it judged against.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from components.core.system.errors import InputError
from components.tracking import store_folder, tracking_uri


class BusyError(InputError):
    """Another process changes the aliases of the model, or has just changed them."""


@contextmanager
def promotion_lock(model: str) -> Iterator[None]:
    """Hold the file lock of `model`; the system releases it when the process ends, even if it is killed.

    Raises:
        BusyError: another process holds the lock.
        InputError: the lock file cannot be written.
    """
    path = _lock_file(model)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(
            f"another process is promoting or rolling back {model}: run the command again when it has ended"
        ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}): make it writable or free space") from None
    try:
        yield
    finally:
        lock.release()


def _lock_file(model: str) -> Path:
    """Next to an SQLite database, so that all projects with this registry share it; else in the project's `mlruns/`."""
    scheme, _, database = (os.environ.get("MLFLOW_REGISTRY_URI") or tracking_uri()).partition(":///")
    path = Path(database) if scheme == "sqlite" and database else store_folder() / "registry"
    return path.with_name(f"{path.name}.{model}.lock")
