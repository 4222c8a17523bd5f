"""The store's SQL database: connections to SQLite or PostgreSQL, with retries while a server restarts, and tables."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import pyarrow as pa
from sqlalchemy import (
    URL,
    Column,
    Connection,
    Double,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from components.captions.prompting.request import Reply
from components.core.system.errors import InputError, shown_address
from components.core.system.retry import retrying
from components.core.tables.formats import STORE, refuse_newer

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


METADATA = MetaData()

GENERATIONS = Table(
    "generations",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("task", String(64), nullable=False, index=True),
    Column("prompt_sha256", String(64), nullable=False),
    Column("model", String(200), nullable=False),
    Column("sampling", String(200), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("answer", String, nullable=False),
    Column("created", String(32), nullable=False),
)
"""Answers; `created` is UTC in ISO format, to the second. `sampling` has the parameters that the server accepted."""

FAILURES = Table(
    "failures",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("task", String(64), nullable=False),
    Column("model", String(200), nullable=False),
    Column("reason", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("at", Double, nullable=False),
)
"""Questions without an answer, and the reason; `at` is in seconds since 1970, as in `IMPORTS`."""

IMPORTS = Table(
    "imports",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("rows", Integer, nullable=False),
    Column("at", Double, nullable=False),
)
"""Exports that were merged."""

EXPORT = pa.schema([(column.name, pa.int32() if column.name == "attempt" else pa.string()) for column in GENERATIONS.c])
"""An export: `GENERATIONS` as Parquet, sorted by task and key."""

_VERSIONS = Table("alembic_version", METADATA, Column("version_num", String(32), primary_key=True))
"""One row, `STORE`; stores of versions up to 0002 were made with Alembic, hence the name."""


def migrate(database: Database) -> None:
    """Create or migrate the tables where they are not of `STORE`; safe when several processes open a new store."""
    with database.explaining("cannot be opened", START):
        with database.streaming() as connection:
            if version_of(connection) == STORE:
                return
        with database.migrating() as connection:
            version = version_of(connection)
            refuse_newer(f"generation store {database.shown}", version, STORE)
            if version != STORE:
                METADATA.create_all(connection)
                connection.execute(text("DROP TABLE IF EXISTS claims"))
                connection.execute(delete(_VERSIONS))
                connection.execute(_VERSIONS.insert(), {"version_num": STORE})


def version_of(connection: Connection) -> str | None:
    """The format of the store's tables; None before there are any."""
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    return connection.execute(select(_VERSIONS.c.version_num)).scalar()


Row = dict[str, str | int | float]
"""A row of a table, by column name."""

_LONGEST_REASON = 500


def split(replies: Sequence[Reply]) -> tuple[list[Row], list[Row]]:
    """Rows of `GENERATIONS` and of `FAILURES`, each sorted by key and without duplicates.

    All workers use one order, so that two that add the same keys cannot wait for each other for ever.
    """
    created = datetime.now(UTC).isoformat(timespec="seconds")
    answers = {reply.request.key: _answer(reply, created) for reply in replies if reply.answer is not None}
    failed = (reply for reply in replies if reply.answer is None and reply.request.key not in answers)
    failures = {reply.request.key: _failure(reply) for reply in failed}
    for name in ("task", "model"):
        longest = cast(String, GENERATIONS.c[name].type).length or 0
        for value in {str(row[name]) for row in (*answers.values(), *failures.values())}:
            if len(value) > longest:
                raise InputError(f"{name} '{value[:60]}...' has {len(value)} characters: the store allows {longest}")
    return [answers[key] for key in sorted(answers)], [failures[key] for key in sorted(failures)]


def insert_rows(connection: Connection, answers: Sequence[Row], failures: Sequence[Row] = ()) -> int:
    """Insert rows in the connection's transaction; returns the number of new answers.

    A stored answer is never replaced. An answer deletes the failure of its question; a failure of an answered question
    is dropped, and a repeated failure counts one attempt more.
    """
    insert: Any = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    added = 0
    if answers:
        keep_first = insert(GENERATIONS).on_conflict_do_nothing(index_elements=["key"])
        # Returned rows are inserted a thousand rows a statement, many times faster than row by row on PostgreSQL.
        added = len(connection.execute(keep_first.returning(GENERATIONS.c.key), answers).all())
        connection.execute(delete(FAILURES).where(FAILURES.c.key.in_([row["key"] for row in answers])))
    if failures:
        keys = [row["key"] for row in failures]
        answered = set(connection.execute(select(GENERATIONS.c.key).where(GENERATIONS.c.key.in_(keys))).scalars())
        failures = [{**row, "attempts": 1, "at": time.time()} for row in failures if row["key"] not in answered]
    if failures:
        new = insert(FAILURES)
        changes = {"reason": new.excluded.reason, "attempts": FAILURES.c.attempts + 1, "at": new.excluded.at}
        connection.execute(new.on_conflict_do_update(index_elements=["key"], set_=changes), failures)
    return added


def storable(text: str) -> str:
    """`text` in a form that every database accepts: PostgreSQL refuses NUL, and UTF-8 half of a surrogate pair."""
    if "\0" in text:
        text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _answer(reply: Reply, created: str) -> Row:
    request = reply.request
    return {
        "key": request.key,
        "task": request.task,
        "prompt_sha256": request.prompt_sha256,
        "model": request.model,
        "sampling": reply.sampling or request.sampling.json,
        "attempt": request.attempt,
        "answer": storable(reply.answer or ""),
        "created": created,
    }


def _failure(reply: Reply) -> Row:
    request, reason = reply.request, " ".join((reply.failure or "no answer").split())
    kept = storable(reason[:_LONGEST_REASON])
    return {"key": request.key, "task": request.task, "model": request.model, "reason": kept}
