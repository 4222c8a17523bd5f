"""What the store keeps of a reply."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

from sqlalchemy import String

from components.captions.request import Reply
from components.captions.store.schema import GENERATIONS
from components.core.errors import InputError

Row = dict[str, str | int]
"""A row of a table, by column name."""

_LONGEST_REASON = 500


def split(replies: Sequence[Reply]) -> tuple[list[Row], list[Row]]:
    """Rows of `GENERATIONS` and of `FAILURES`, each sorted by key, none twice.

    One order for all workers, so that two that add the same keys cannot wait for each other for ever.

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


def storable(text: str) -> str:
    """`text` as every database can keep it: PostgreSQL knows no NUL, UTF-8 no half of a surrogate pair."""
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
            raise InputError(f"{name} '{value[:60]}...' has {len(value)} characters: the store keeps {longest}")
