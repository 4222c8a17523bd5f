"""SQLite: one file, one writer at a time, any number of processes on one machine."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, event, text
from sqlalchemy.exc import DBAPIError

from components.captions.store.rows import Row
from components.core.errors import InputError
from components.core.retry import retrying

_WAIT_S = 60.0
_PRAGMAS = (
    # A write-ahead log survives SIGKILL without losing a committed answer, and readers do not block the writer.
    "journal_mode=WAL",
    # Waits for the disk at checkpoints only; a power cut may lose the last answers, never damage the file.
    "synchronous=NORMAL",
    # Keys are hashes, so every answer touches another page of their index. A long log (64 MB) writes a page back once
    # for many answers, a large cache (64 MB) finds it in memory.
    "wal_autocheckpoint=16384",
    "cache_size=-65536",
)


class Sqlite:
    """See `Dialect`. Every write begins as a writer, so that what it reads cannot change before it commits."""

    # The function unixepoch('subsec') is younger than many an installed SQLite.
    now = "((julianday('now') - 2440587.5) * 86400.0)"
    collation = "BINARY"
    among = "key IN (SELECT value FROM json_each(:keys))"
    skip_locked = ""
    size = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"

    def prepare(self, url: URL, *, must_exist: bool) -> tuple[URL, Mapping[str, Any]]:
        """Make the file's folder."""
        if not url.database or url.database == ":memory:":
            raise InputError("generation store (synthesize.store): a store in memory keeps nothing: name a file")
        path = Path(url.database)
        if must_exist and not path.exists():
            raise InputError(f"generation store {path} is missing: run `dvc repro` to make it, or correct its URL")
        path.parent.mkdir(parents=True, exist_ok=True)
        return url.set(drivername="sqlite"), {"connect_args": {"timeout": _WAIT_S}}

    def listen(self, engine: Engine) -> None:
        """Let SQLAlchemy, not the driver, begin transactions."""
        event.listen(engine, "connect", _set_up)
        event.listen(engine, "begin", _begin)

    @contextmanager
    def writing(self, engine: Engine) -> Iterator[Connection]:
        """A transaction that holds the write lock from its start."""
        with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
            yield connection

    migrating = writing

    @contextmanager
    def reading(self, engine: Engine) -> Iterator[Connection]:
        """A transaction that sees the store as it was at its first look."""
        with engine.begin() as connection:
            yield connection

    streaming = reading

    def passes(self, error: DBAPIError) -> bool:
        """Never: the driver has waited for the lock already."""
        return False

    def bind(self, keys: Sequence[str]) -> str:
        """A JSON array."""
        return json.dumps(keys)

    def add(self, connection: Connection, answers: list[Row], failures: list[Row], workers: Sequence[str]) -> int:
        """Insert, then delete claims."""
        answered, failed = (self.bind([str(row["key"]) for row in rows]) for rows in (answers, failures))
        new = 0
        if answers:
            new = connection.exec_driver_sql(_INSERT, answers).rowcount
            connection.execute(_MENDED, {"keys": answered})
        if failures:
            connection.exec_driver_sql(_FAILED, failures)
        connection.execute(_SETTLED, {"answered": answered, "failed": failed, "workers": json.dumps(workers)})
        return new

    def take(self, connection: Connection, keys: Sequence[str], worker: str, lease_s: float) -> set[str]:
        """One statement: the write lock keeps everyone else from answering or claiming meanwhile."""
        bound = {"keys": self.bind(keys), "worker": worker, "lease": lease_s}
        return set(connection.execute(_TAKE, bound).scalars())


def _set_up(connection: Any, _record: object) -> None:
    connection.isolation_level = None
    # Of two processes that make a new file's log at once, SQLite refuses one without waiting.
    for pragma in _PRAGMAS:
        retrying(_WAIT_S, _is_locked, first_s=0.01, longest_s=0.1)(connection.execute, f"PRAGMA {pragma}")


def _is_locked(error: BaseException) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


_INSERT = """
INSERT INTO generations (key, task, prompt_sha256, model, sampling, attempt, answer, created)
VALUES (:key, :task, :prompt_sha256, :model, :sampling, :attempt, :answer, :created)
ON CONFLICT (key) DO NOTHING
"""

_MENDED = text(f"DELETE FROM failures WHERE {Sqlite.among}")

_FAILED = f"""
INSERT INTO failures (key, task, model, reason, attempts, at)
SELECT :key, :task, :model, :reason, 1, {Sqlite.now}
WHERE NOT EXISTS (SELECT 1 FROM generations WHERE key = :key)
ON CONFLICT (key) DO UPDATE SET reason = excluded.reason, attempts = attempts + 1, at = excluded.at
"""

_SETTLED = text("""
DELETE FROM claims
WHERE key IN (SELECT value FROM json_each(:answered))
   OR key IN (SELECT value FROM json_each(:failed)) AND worker IN (SELECT value FROM json_each(:workers))
""")

_TAKE = text(f"""
INSERT INTO claims (key, worker, lease_end)
SELECT value, :worker, {Sqlite.now} + :lease FROM json_each(:keys)
WHERE NOT EXISTS (SELECT 1 FROM generations WHERE generations.key = value)
ON CONFLICT (key) DO UPDATE SET worker = excluded.worker, lease_end = excluded.lease_end
WHERE claims.worker = excluded.worker OR claims.lease_end < {Sqlite.now}
RETURNING key
""")

DIALECT = Sqlite()
