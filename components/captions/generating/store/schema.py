"""The store's tables, their creation and migration, and the insertion of replies."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
from sqlalchemy import Column, Connection, Double, Integer, MetaData, String, Table, delete, inspect, select, text
from sqlalchemy.dialects import postgresql, sqlite

from components.captions.generating.store.database import START, Database
from components.captions.prompting.request import Reply
from components.core.system.errors import InputError
from components.core.tables.formats import STORE, refuse_newer

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
