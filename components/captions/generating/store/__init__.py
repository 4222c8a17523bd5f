"""The generation store: every answer of every language model, stored under its question."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from more_itertools import chunked
from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    and_,
    collate,
    delete,
    desc,
    func,
    insert,
    select,
    text,
    true,
)
from sqlalchemy import Table as SqlTable

from components.captions.generating.store.database import (
    EXPORT,
    FAILURES,
    GENERATIONS,
    IMPORTS,
    RESUME,
    Database,
    Row,
    insert_rows,
    migrate,
    split,
    storable,
)
from components.captions.prompting.request import Reply
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.tables.files import atomic_file, file_hash

_WRITTEN, _READ = 20_000, 10_000
"""Rows of an export that are written and read together, so that memory use stays constant."""


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
    """Counts of a store; `imports` is the number of merged exports."""

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

    def condition(self, table: SqlTable) -> ColumnElement[bool]:
        """The condition on rows of `GENERATIONS` or `FAILURES`."""
        conditions: list[ColumnElement[bool]] = []
        if self.task is not None:
            conditions.append(table.c.task == self.task)
        if self.model is not None:
            conditions.append(table.c.model == self.model)
        if self.before is not None and table is FAILURES:
            conditions.append(table.c.at < self.before.timestamp())
        elif self.before is not None:
            # Answers have the time as text of one form, which sorts as the times do.
            conditions.append(table.c.created < self.before.isoformat(timespec="seconds"))
        return and_(true(), *conditions)


@dataclass(frozen=True)
class Pruned:
    """Number of deleted rows of one task and model."""

    task: str
    model: str
    rows: int


class GenerationStore:
    """Answers and failures in a SQL database, SQLite by default, PostgreSQL by URL, shared by any number of workers.

    Every method raises `InputError` when the database refuses or stays unavailable. While a server restarts, methods
    wait.

    >>> from components.captions.prompting.request import Reply, Request, Sampling
    >>> store = GenerationStore(f"sqlite:///{folder}/generations.db")
    >>> request = Request("rewrite", (("user", "Say otherwise: a dog"),), "a model", Sampling(0.7, 0.9, 64), 0)
    >>> store.add([Reply(request, "one hound")])
    >>> store.answers([request.key])[request.key]
    'one hound'
    >>> store.close()
    """

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        """Open the store; creates or migrates its tables where they are not of this version."""
        self._database = Database(url, must_exist=must_exist)
        migrate(self._database)

    def answers(self, keys: Iterable[str]) -> dict[str, str]:
        """The stored answers of `keys`, looked up in bulk."""
        return self._pairs(GENERATIONS.c.key, GENERATIONS.c.answer, keys)

    def failures(self, keys: Iterable[str]) -> dict[str, str]:
        """The reasons for which questions among `keys` have no answer."""
        return self._pairs(FAILURES.c.key, FAILURES.c.reason, keys)

    def add(self, replies: Sequence[Reply]) -> None:
        """Store answers and failures in one transaction.

        A stored answer is never replaced; a failure of an answered question is dropped.
        """
        answers, failures = split(replies)
        if answers or failures:
            self._database.write(lambda connection: insert_rows(connection, answers, failures))

    def count(self) -> int:
        """Number of stored answers."""
        return int(self._all(select(func.count()).select_from(GENERATIONS))[0][0])

    def import_parquet(self, path: Path, without: Callable[[], Collection[str]] = frozenset) -> int:
        """Merge an export into the store; returns the number of new answers.

        Args:
            path: the export.
            without: returns the keys whose answers are left out.
        """
        try:
            sha256, new, total, left_out = file_hash(path), 0, 0, without()
            for block in _rows(path):
                rows = [row for row in block if row["key"] not in left_out]
                new += self._database.write(lambda connection, rows=rows: insert_rows(connection, rows))  # type: ignore[misc]
                total += len(rows)
        except FileNotFoundError:
            raise InputError(
                f"{path} is missing: restore it from git, or set synthesize.cached_answers to null"
            ) from None
        except (pa.ArrowException, OSError, ValueError) as error:
            reason = str(error).splitlines()[0][:120]
            raise InputError(f"{path} is not an export of a generation store ({reason}): name another file") from None

        def remember(connection: Connection) -> None:
            connection.execute(delete(IMPORTS).where(IMPORTS.c.sha256 == sha256))
            connection.execute(insert(IMPORTS), {"sha256": sha256, "rows": total, "at": time.time()})

        self._database.write(remember)
        return new

    def import_once(self, path: Path, without: Callable[[], Collection[str]] = frozenset) -> int:
        """`import_parquet` of a file that was never imported before: pruned answers are not restored."""
        if path.exists() and self._all(select(IMPORTS.c.sha256).where(IMPORTS.c.sha256 == file_hash(path))):
            return 0
        return self.import_parquet(path, without)

    def export_parquet(self, path: Path) -> int:
        """Write all answers to a Parquet file, sorted by task and key; returns their number."""
        written = 0
        try:
            with (
                atomic_file(path) as temporary,
                pq.ParquetWriter(temporary, EXPORT, compression="zstd") as writer,
                bar("export", self.count(), "row") as progress,
            ):
                for rows in self._stream():
                    columns = zip(*rows, strict=True)
                    arrays = [pa.array(column, field.type) for column, field in zip(columns, EXPORT, strict=True)]
                    writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=EXPORT))
                    written += len(rows)
                    progress.update(len(rows))
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error.strerror or error}): choose another place") from None
        return written

    def stats(self) -> StoreStats:
        """Count the contents; reads the whole table of answers."""
        answers = tuple(AnswerCount(*row) for row in self._all(_ANSWERS))
        size = _SQLITE_SIZE if self._database.is_sqlite else _POSTGRESQL_SIZE
        return StoreStats(
            store=self._database.shown,
            rows=sum(group.rows for group in answers),
            bytes=int(self._all(text(size))[0][0]),
            oldest=min((group.oldest for group in answers), default=None),
            newest=max((group.newest for group in answers), default=None),
            answers=answers,
            failures=tuple(FailureCount(*row) for row in self._all(_FAILURES)),
            imports=len(self._all(select(IMPORTS.c.sha256))),
        )

    def prune(self, choice: Choice, *, dry_run: bool = False) -> list[Pruned]:
        """Delete the chosen rows; returns their numbers by task and model, in a dry run of those to delete."""
        choice.check()
        table = FAILURES if choice.failed else GENERATIONS
        condition, key = choice.condition(table), (table.c.task, table.c.model)
        query = select(*key, func.count()).where(condition).group_by(*key).order_by(*key)
        groups = [Pruned(*row) for row in self._all(query)]
        if not dry_run and groups:
            self._database.write(lambda connection: connection.execute(delete(table).where(condition)))
        return groups

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _all(self, query: Executable) -> Sequence[Any]:
        return self._database.read(lambda connection: connection.execute(query).all())

    def _pairs(self, key: ColumnElement[str], value: ColumnElement[str], keys: Iterable[str]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for block in chunked(keys, 2_000):
            pairs.update(map(tuple, self._all(select(key, value).where(key.in_(block)))))
        return pairs

    def _stream(self) -> Iterator[Sequence[Any]]:
        byte_order = "BINARY" if self._database.is_sqlite else "C"
        order = (collate(column, byte_order) for column in (GENERATIONS.c.task, GENERATIONS.c.key))
        query = select(GENERATIONS).order_by(*order)
        with self._database.explaining("failed", RESUME), self._database.streaming() as connection:
            yield from connection.execution_options(yield_per=_WRITTEN).execute(query).partitions()


def _rows(path: Path) -> Iterator[list[Row]]:
    """The rows of an export in blocks, each sorted by key."""
    with pq.ParquetFile(path) as file, bar("import", file.metadata.num_rows, "row") as progress:
        for name in EXPORT.names:
            if name not in file.schema_arrow.names:
                raise ValueError(f"it has no column '{name}'")
        for batch in file.iter_batches(batch_size=_READ, columns=EXPORT.names):
            table = pa.Table.from_batches([batch]).select(EXPORT.names).cast(EXPORT)
            if any(column.null_count for column in table.columns):
                raise ValueError("it has empty cells")
            rows: list[Row] = table.sort_by("key").to_pylist()
            for row in rows:
                row["answer"] = storable(str(row["answer"]))
            yield rows
            progress.update(len(rows))


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
