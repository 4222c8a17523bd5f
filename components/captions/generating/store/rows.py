"""Replies as rows of the store, and how rows are inserted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import Connection, String, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from components.captions.generating.store.schema import FAILURES, GENERATIONS
from components.captions.prompting.request import Reply
from components.core.system.errors import InputError

Row = dict[str, str | int | float]
"""A row of a table, by column name."""

_LONGEST_REASON = 500


def split(replies: Sequence[Reply]) -> tuple[list[Row], list[Row]]:
    """Rows of `GENERATIONS` and of `FAILURES`, each sorted by key and without duplicates.

    All workers use one order, so that two that add the same keys cannot wait for each other for ever.

    Raises:
        InputError: a name is longer than its column.
    """
    created = datetime.now(UTC).isoformat(timespec="seconds")
    answers = {reply.request.key: _answer(reply, created) for reply in replies if reply.answer is not None}
    failures = {
        reply.request.key: _failure(reply)
        for reply in replies
        if reply.answer is None and reply.request.key not in answers
    }
    for name in ("task", "model"):
        _check(name, {str(row[name]) for row in (*answers.values(), *failures.values())})
    return [answers[key] for key in sorted(answers)], [failures[key] for key in sorted(failures)]


def insert_rows(connection: Connection, answers: Sequence[Row], failures: Sequence[Row] = ()) -> int:
    """Insert rows in the connection's transaction; returns the number of new answers.

    A stored answer is never replaced. An answer deletes the failure of its question; a failure of an answered question
    is dropped, and a repeated failure counts one attempt more.
    """
    insert = _insert(connection)
    added = 0
    if answers:
        keep_first = insert(GENERATIONS).on_conflict_do_nothing(index_elements=["key"])
        # What is returned is inserted a thousand rows a statement, many times faster than row by row on PostgreSQL.
        added = len(connection.execute(keep_first.returning(GENERATIONS.c.key), answers).all())
        connection.execute(delete(FAILURES).where(FAILURES.c.key.in_([row["key"] for row in answers])))
    if failures:
        keys = [row["key"] for row in failures]
        answered = set(connection.execute(select(GENERATIONS.c.key).where(GENERATIONS.c.key.in_(keys))).scalars())
        rows = [{**row, "attempts": 1, "at": time.time()} for row in failures if row["key"] not in answered]
        new = insert(FAILURES)
        changes = {"reason": new.excluded.reason, "attempts": FAILURES.c.attempts + 1, "at": new.excluded.at}
        if rows:
            connection.execute(new.on_conflict_do_update(index_elements=["key"], set_=changes), rows)
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


def _insert(connection: Connection) -> Any:
    return sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert


def _answer(reply: Reply, created: str) -> Row:
    request = reply.request
    return {
        "key": request.key,
        "task": request.task,
        "prompt_sha256": request.prompt_sha256,
        "model": request.model,
        "sampling": request.sampling.json,
        "attempt": request.attempt,
        "answer": storable(reply.answer or ""),
        "created": created,
    }


def _failure(reply: Reply) -> Row:
    request, reason = reply.request, " ".join((reply.failure or "no answer").split())
    kept = storable(reason[:_LONGEST_REASON])
    return {"key": request.key, "task": request.task, "model": request.model, "reason": kept}


def _check(name: str, values: set[str]) -> None:
    longest = cast(String, GENERATIONS.c[name].type).length or 0
    for value in values:
        if len(value) > longest:
            raise InputError(f"{name} '{value[:60]}...' has {len(value)} characters: the store allows {longest}")
