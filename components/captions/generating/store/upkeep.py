"""Statistics of a store, and deletion of chosen rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Executable, and_, delete, desc, func, select, text, true, update
from sqlalchemy import Table as SqlTable

from components.captions.generating.store.database import Database
from components.captions.generating.store.schema import FAILURES, GENERATIONS, IMPORTS, PRUNED
from components.core.system.errors import InputError


@dataclass(frozen=True)
class AnswerCount:
    """Answers of one task and model; `oldest` and `newest` are UTC in ISO format."""

    task: str
    model: str
    rows: int
    oldest: str
    newest: str


@dataclass(frozen=True)
class FailureCount:
    """Questions of one task that failed for one reason, and their attempts in all."""

    task: str
    reason: str
    rows: int
    attempts: int


@dataclass(frozen=True)
class StoreStats:
    """Counts of a store; `imports` is the number of merged exports whose rows are all in the store."""

    store: str
    rows: int
    bytes: int
    oldest: str | None
    newest: str | None
    answers: tuple[AnswerCount, ...]
    failures: tuple[FailureCount, ...]
    imports: int


@dataclass(frozen=True)
class Choice:
    """Which rows to prune: those for which every given condition holds."""

    task: str | None = None
    model: str | None = None
    before: datetime | None = None
    failed: bool = False

    def check(self) -> None:
        """Raise `InputError` where no condition is given, which would delete everything."""
        if self == Choice():
            raise InputError("prune needs a condition: give --task, --model, --older-than or --failed")


@dataclass(frozen=True)
class Pruned:
    """Number of deleted rows of one task and model."""

    task: str
    model: str
    rows: int


def read_stats(database: Database) -> StoreStats:
    """Count everything; reads the whole table of answers."""
    answers = tuple(AnswerCount(*row) for row in _all(database, _ANSWERS))
    return StoreStats(
        store=database.shown,
        rows=sum(group.rows for group in answers),
        bytes=int(_all(database, text(_SQLITE_SIZE if database.is_sqlite else _POSTGRESQL_SIZE))[0][0]),
        oldest=min((group.oldest for group in answers), default=None),
        newest=max((group.newest for group in answers), default=None),
        answers=answers,
        failures=tuple(FailureCount(*row) for row in _all(database, _FAILURES)),
        imports=len(_all(database, select(IMPORTS.c.sha256).where(IMPORTS.c.rows != PRUNED))),
    )


def prune(database: Database, choice: Choice, *, dry_run: bool) -> list[Pruned]:
    """Delete answers, or failures; returns the deleted rows by task and model, in a dry run those to delete."""
    choice.check()
    table = FAILURES if choice.failed else GENERATIONS
    condition = _condition(table, choice)
    key = (table.c.task, table.c.model)
    query = select(*key, func.count()).where(condition).group_by(*key).order_by(*key)
    groups = [Pruned(*row) for row in _all(database, query)]
    if not dry_run and groups:
        # First: an export must never count as imported when one of its rows is gone.
        if table is GENERATIONS:
            database.write(lambda connection: connection.execute(update(IMPORTS).values(rows=PRUNED)))
        database.write(lambda connection: connection.execute(delete(table).where(condition)))
    return groups


def _condition(table: SqlTable, choice: Choice) -> ColumnElement[bool]:
    conditions: list[ColumnElement[bool]] = []
    if choice.task is not None:
        conditions.append(table.c.task == choice.task)
    if choice.model is not None:
        conditions.append(table.c.model == choice.model)
    if choice.before is not None and table is FAILURES:
        conditions.append(table.c.at < choice.before.timestamp())
    elif choice.before is not None:
        # Answers have the time as text of one form, which sorts as the times do.
        conditions.append(table.c.created < choice.before.isoformat(timespec="seconds"))
    return and_(true(), *conditions)


def _all(database: Database, query: Executable) -> Sequence[Any]:
    return database.read(lambda connection: connection.execute(query).all())


_TASK, _MODEL, _CREATED = GENERATIONS.c.task, GENERATIONS.c.model, GENERATIONS.c.created
_ANSWERS = (
    select(_TASK, _MODEL, func.count(), func.min(_CREATED), func.max(_CREATED))
    .group_by(_TASK, _MODEL)
    .order_by(_TASK, _MODEL)
)
_FAILURES = (
    select(FAILURES.c.task, FAILURES.c.reason, func.count().label("rows"), func.sum(FAILURES.c.attempts))
    .group_by(FAILURES.c.task, FAILURES.c.reason)
    .order_by(desc("rows"), FAILURES.c.task, FAILURES.c.reason)
    .limit(100)
)
_SQLITE_SIZE = "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
_POSTGRESQL_SIZE = (
    "SELECT CAST(sum(pg_total_relation_size(to_regclass(name))) AS bigint)"
    " FROM unnest(ARRAY['generations', 'failures', 'imports']) AS name"
)
