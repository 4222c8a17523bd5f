"""What a store holds, counted."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import desc, func, select, text

from components.captions.store.database import Database
from components.captions.store.schema import FAILURES, GENERATIONS, IMPORTS, PRUNED

_MOST_REASONS = 100


@dataclass(frozen=True)
class Answers:
    """Answers of one task and model; `oldest` and `newest` are UTC in ISO format."""

    task: str
    model: str
    rows: int
    oldest: str
    newest: str


@dataclass(frozen=True)
class Failures:
    """Questions of one task that have no answer for one reason, and how often they were tried together."""

    task: str
    reason: str
    rows: int
    attempts: int


@dataclass(frozen=True)
class Stats:
    """A store.

    Attributes:
        store: its URL without the password.
        rows: answers in all.
        bytes: what it takes on disk.
        oldest: when the first answer was made, UTC in ISO format; None in an empty store.
        newest: the same of the last.
        answers: by task and model.
        failures: by task and reason, the most frequent ones, most first.
        live_claims: questions that a worker is asking.
        expired_claims: questions that a worker took and lost.
        imports: exports that were merged and need not be again.
    """

    store: str
    rows: int
    bytes: int
    oldest: str | None
    newest: str | None
    answers: tuple[Answers, ...]
    failures: tuple[Failures, ...]
    live_claims: int
    expired_claims: int
    imports: int


def read_stats(database: Database) -> Stats:
    """Count everything; reads the whole table of answers.

    Raises:
        InputError: the store failed.
    """
    answers = tuple(Answers(*row) for row in database.read(lambda found: found.execute(_ANSWERS).all()))
    failures = tuple(Failures(*row) for row in database.read(lambda found: found.execute(_FAILURES).all()))
    claims = text(f"SELECT count(*), count(CASE WHEN lease_end >= {database.dialect.now} THEN 1 END) FROM claims")
    every, live = database.read(lambda found: found.execute(claims).one())
    return Stats(
        store=database.shown,
        rows=sum(group.rows for group in answers),
        bytes=int(database.read(lambda found: found.execute(text(database.dialect.size)).scalar_one())),
        oldest=min((group.oldest for group in answers), default=None),
        newest=max((group.newest for group in answers), default=None),
        answers=answers,
        failures=failures,
        live_claims=live,
        expired_claims=every - live,
        imports=database.read(lambda found: found.execute(_IMPORTS).scalar_one()),
    )


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
    .limit(_MOST_REASONS)
)
_IMPORTS = select(func.count()).select_from(IMPORTS).where(IMPORTS.c.rows != PRUNED)
