"""Connections to the SQL database of the store: SQLite or PostgreSQL, with retries while a server restarts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from components.core.system.errors import InputError, shown_address
from components.core.system.retry import retrying

RETRY_S = 60.0
"""How long a database may be unavailable, for example to restart, before the work stops."""

START = "start it or correct its URL"
RESUME = "fix that and run the same command again; it resumes where this one stopped"
_LOCK_WAIT_S = 60.0
_MIGRATION_LOCK = 7_025_190_016
"""Number of PostgreSQL's advisory lock; all processes that migrate a store use the same."""

_PRAGMAS = (
    # A write-ahead log survives SIGKILL without losing a committed answer, and readers do not block the writer.
    "journal_mode=WAL",
    # Waits for the disk at checkpoints only: a power cut may lose the last answers but never damages the file.
    "synchronous=NORMAL",
    # Keys are hashes, so every answer touches another page of their index. A long log (64 MB) writes each page back
    # once for many answers, and a large cache (64 MB) keeps the pages in memory.
    "wal_autocheckpoint=16384",
    "cache_size=-65536",
)
_PG_CONNECT: dict[str, Any] = {
    # Plans of prepared statements would be kept from the time when the tables were small.
    "prepare_threshold": None,
    "application_name": "cliptune",
    # Without these, the kernel waits a quarter of an hour for a host that disappeared.
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_PG_TRANSIENT = {
    "40001",  # serialization failure
    "40P01",  # deadlock
    "53300",  # too many connections
    "57P01",  # the administrator ended the connection
    "57P02",  # the server crashed
    "57P03",  # the server is starting or stopping
}
T = TypeVar("T")


class Database:
    """Connections to one database."""

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        """Prepare the engine; opens no connection yet."""
        parsed = _parse(url)
        backend = parsed.get_backend_name()
        if backend not in ("postgres", "postgresql", "sqlite"):
            raise InputError(
                f"generation store (synthesize.store): database '{backend}' is unknown: choose postgresql or sqlite"
            )
        self.is_sqlite = backend == "sqlite"
        passwords = (value for name, value in parsed.query.items() if "password" in name)
        self._secrets = [str(value) for value in (parsed.password, *passwords) if value]
        self.shown = shown_address(parsed.render_as_string(hide_password=False))
        with self.explaining("cannot be opened", START):
            self._engine = _sqlite_engine(parsed, must_exist) if self.is_sqlite else _postgresql_engine(parsed)
        # A write on SQLite holds the write lock from its start, so that its reads stay true until the commit.
        # A read on PostgreSQL needs no transaction, which saves the round trips of BEGIN and COMMIT.
        self._writer = self._engine.execution_options(begin="BEGIN IMMEDIATE")
        self._reader = self._engine if self.is_sqlite else self._engine.execution_options(isolation_level="AUTOCOMMIT")

    def read(self, operation: Callable[[Connection], T]) -> T:
        """The result of `operation`, which may run more than once, see `write`."""
        return self._with_retries(self._reader.connect, operation)

    def write(self, operation: Callable[[Connection], T]) -> T:
        """Run `operation` in one transaction.

        It runs again after a broken connection, even if the first commit succeeded and only its confirmation was
        lost: running it twice must have the same effect as once.
        """
        return self._with_retries(self._writer.begin, operation)

    def streaming(self) -> AbstractContextManager[Connection]:
        """A connection for reading results that need not fit into memory."""
        return self._engine.connect()

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A transaction that only one process can hold."""
        with self._writer.begin() as connection:
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _MIGRATION_LOCK})
            yield connection

    @contextmanager
    def explaining(self, fault: str, advice: str) -> Iterator[None]:
        """Turn every database error in the block into an `InputError` of one line."""
        try:
            yield
        except (SQLAlchemyError, OSError) as error:
            raise InputError(f"generation store {self.shown} {fault} ({self._reason(error)}): {advice}") from None

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _with_retries(
        self, connect: Callable[[], AbstractContextManager[Connection]], operation: Callable[[Connection], T]
    ) -> T:
        def attempt() -> T:
            with connect() as connection:
                return operation(connection)

        with self.explaining("failed", RESUME):
            return retrying(
                RETRY_S,
                self._is_transient,
                lambda error: f"generation store {self.shown} is unavailable ({self._reason(error)}): trying again",
            )(attempt)

    def _is_transient(self, error: BaseException) -> bool:
        """Whether another attempt may succeed; never on SQLite, whose driver has waited for the lock already."""
        if self.is_sqlite or not isinstance(error, DBAPIError):
            return False
        import psycopg

        state = getattr(error.orig, "sqlstate", None)
        is_lost = error.connection_invalidated or (state is None and isinstance(error.orig, psycopg.OperationalError))
        return is_lost or state in _PG_TRANSIENT

    def _reason(self, error: BaseException) -> str:
        """First line of the driver's message, without passwords."""
        message = str(getattr(error, "orig", None) or error).strip()
        reason = message.splitlines()[0][:200] if message else type(error).__name__
        for secret in self._secrets:
            reason = reason.replace(secret, "***")
        return reason


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    # The error may quote the URL with its password.
    except (ArgumentError, ValueError):
        raise InputError(
            "synthesize.store is not a database URL: give for example sqlite:///state/generations.db or "
            "postgresql://user@host/cliptune"
        ) from None


def _postgresql_engine(url: URL) -> Engine:
    connect = {key: value for key, value in _PG_CONNECT.items() if key not in url.query}
    return create_engine(url.set(drivername="postgresql+psycopg"), hide_parameters=True, connect_args=connect)


def _sqlite_engine(url: URL, must_exist: bool) -> Engine:
    if not url.database or url.database == ":memory:":
        raise InputError("generation store (synthesize.store): a store in memory keeps nothing: name a file")
    path = Path(url.database)
    if must_exist and not path.exists():
        raise InputError(f"generation store {path} is missing: run `dvc repro` to make it, or correct its URL")
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(url.set(drivername="sqlite"), hide_parameters=True, connect_args={"timeout": _LOCK_WAIT_S})
    event.listen(engine, "connect", _set_pragmas)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def _set_pragmas(connection: Any, _record: object) -> None:
    # SQLAlchemy instead of the driver begins transactions.
    connection.isolation_level = None
    # When two processes create a new file's log at the same time, SQLite refuses one of them without waiting.
    for pragma in _PRAGMAS:
        retrying(_LOCK_WAIT_S, _is_locked, first_s=0.01, longest_s=0.1)(connection.execute, f"PRAGMA {pragma}")


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
