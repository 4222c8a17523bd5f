"""PostgreSQL's advisory lock; it goes with the connection, so a killed process leaves none behind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, NullPool, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from components.core.errors import InputError
from components.registry.locks.lock import Asked, BusyError, Lock
from components.tracking import reason_of, shown_address

_TRY = text("SELECT pg_try_advisory_lock(:kind, :model)")
_ALIVE = text("SELECT 1")
_RELEASE = text("SELECT pg_advisory_unlock(:kind, :model)")
_SIGN = text("SELECT set_config('application_name', :who, false)")
_HOLDER = text(
    "SELECT activity.application_name FROM pg_locks locks JOIN pg_stat_activity activity USING (pid) "
    "WHERE locks.locktype = 'advisory' AND locks.granted AND locks.database = "
    "(SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND locks.classid = :kind AND locks.objid = :model"
)
_LONGEST_NAME = 63


@contextmanager
def take(asked: Asked) -> Iterator[Lock]:
    """See `held`."""
    key = {"kind": _number("cliptune promotion"), "model": _number(asked.model)}
    engine = create_engine(asked.uri, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    connection = None
    try:
        connection = engine.connect()
        # Signed first: whoever finds the lock taken must find a name on it.
        connection.execute(_SIGN, {"who": asked.who[:_LONGEST_NAME]})
        taken = connection.execute(_TRY, key).scalar_one()
        holder = "" if taken else connection.execute(_HOLDER, key).scalar()
    except SQLAlchemyError as error:
        if connection is not None:
            connection.close()
        raise InputError(_unreachable(asked.uri, error)) from None
    try:
        if not taken:
            raise BusyError(asked.model, holder or "another process")
        yield Lock(confirm=lambda: _confirm(connection, asked.uri))
    finally:
        _let_go(connection, key)


def _confirm(connection: Connection, uri: str) -> None:
    """A connection that still answers has its lock still."""
    try:
        connection.execute(_ALIVE)
    except SQLAlchemyError as error:
        raise InputError(_unreachable(uri, error)) from None


def _let_go(connection: Connection, key: dict[str, int]) -> None:
    try:
        connection.execute(_RELEASE, key)
    except SQLAlchemyError:
        # A connection that broke took the lock with it.
        pass
    finally:
        connection.close()


def _unreachable(uri: str, error: SQLAlchemyError) -> str:
    return f"{shown_address(uri)} does not answer ({reason_of(error)}): check MLFLOW_TRACKING_URI and the database"


def _number(name: str) -> int:
    """A number that both `int4` and `oid` can hold."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1
