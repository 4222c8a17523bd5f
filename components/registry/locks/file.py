"""The lock beside an SQLite file; the system lets go of it however its process ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout
from sqlalchemy import make_url

from components.core.errors import InputError
from components.registry.locks.lock import Asked, BusyError, Lock

_SIGNED_WITHIN = 5.0
"""Seconds to wait for the lock: a holder takes it first and signs then, over the name of one that was killed."""


@contextmanager
def take(asked: Asked) -> Iterator[Lock]:
    """See `held`."""
    database = Path(make_url(asked.uri).database or "mlflow.db")
    path = database.with_name(f"{database.name}.{asked.model}.lock")
    lock, holder = FileLock(path), path.with_suffix(".holder")
    try:
        lock.acquire(timeout=_SIGNED_WITHIN)
        holder.write_text(asked.who, encoding="utf-8")
    except Timeout:
        raise BusyError(asked.model, _read(holder)) from None
    except OSError as error:
        lock.release()
        raise InputError(f"{path} cannot be written ({error}): make it writable or free space") from None
    try:
        yield Lock(confirm=lambda: None)
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def _read(holder: Path) -> str:
    try:
        return holder.read_text("utf-8") or "another process"
    except OSError:
        return "another process"
