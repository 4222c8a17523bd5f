"""Rows taken out of a store on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from sqlalchemy import ColumnElement, Connection, and_, delete, func, select, true, update
from sqlalchemy import Table as SqlTable

from components.captions.store.database import Database
from components.captions.store.schema import FAILURES, GENERATIONS, IMPORTS, PRUNED
from components.core.errors import InputError
from components.core.progress import bar

_AT_ONCE = 50_000
"""Rows that one transaction may delete: other workers wait meanwhile."""


@dataclass(frozen=True)
class Choice:
    """Which rows go: those for which all that is given holds.

    Attributes:
        task: of this prompt task.
        model: of this model, as `Engine.model` names it.
        before: older than this.
        failed: failures instead of answers.
    """

    task: str | None = None
    model: str | None = None
    before: datetime | None = None
    failed: bool = False

    def check(self) -> None:
        """Raise `InputError` where nothing is chosen, which would be everything."""
        if self == Choice():
            raise InputError("prune needs to know what: give --task, --model, --older-than or --failed")


@dataclass(frozen=True)
class Pruned:
    """Rows of one task and model that went."""

    task: str
    model: str
    rows: int


def prune(database: Database, choice: Choice, *, dry_run: bool) -> list[Pruned]:
    """Delete answers, or failures; returns what went, or would go.

    Raises:
        InputError: nothing is chosen, or the store failed.
    """
    choice.check()
    table = FAILURES if choice.failed else GENERATIONS
    chosen = _condition(table, choice)
    groups = (
        select(table.c.task, table.c.model, func.count())
        .where(chosen)
        .group_by(table.c.task, table.c.model)
        .order_by(table.c.task, table.c.model)
    )
    found = [Pruned(*row) for row in database.read(lambda connection: connection.execute(groups).all())]
    if not dry_run and found:
        # First: an export must never count as imported when one of its rows is gone.
        if table is GENERATIONS:
            database.write(lambda connection: connection.execute(update(IMPORTS).values(rows=PRUNED)))
        _delete(database, table, chosen, sum(group.rows for group in found))
    return found


def _condition(table: SqlTable, choice: Choice) -> ColumnElement[bool]:
    wanted: list[ColumnElement[bool]] = []
    if choice.task is not None:
        wanted.append(table.c.task == choice.task)
    if choice.model is not None:
        wanted.append(table.c.model == choice.model)
    if choice.before is not None:
        # Answers have the time as text of one form, which sorts as the times do.
        wanted.append(
            table.c.at < choice.before.timestamp()
            if table is FAILURES
            else table.c.created < choice.before.isoformat(timespec="seconds")
        )
    return and_(true(), *wanted)


def _delete(database: Database, table: SqlTable, chosen: ColumnElement[bool], total: int) -> None:
    """Delete slice by slice of the keys, which are hashes and so evenly spread."""
    slices = [true()] if total <= _AT_ONCE else _slices(table)
    with bar("prune", total, "row") as progress:
        for part in slices:
            statement = delete(table).where(chosen, part)

            def remove(connection: Connection, statement=statement) -> int:  # type: ignore[no-untyped-def]
                return int(connection.execute(statement).rowcount)

            progress.update(database.write(remove))


def _slices(table: SqlTable) -> list[ColumnElement[bool]]:
    edges = [f"{number:02x}" for number in range(1, 256)]
    first, last = table.c.key < edges[0], table.c.key >= edges[-1]
    between = [and_(table.c.key >= low, table.c.key < high) for low, high in pairwise(edges)]
    return [first, *between, last]
