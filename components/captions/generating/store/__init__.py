"""The generation store: every answer of every language model, stored under its question."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from more_itertools import chunked
from sqlalchemy import ColumnElement, func, select

from components.captions.generating.store.database import Database
from components.captions.generating.store.exchange import Without, export_parquet, import_parquet
from components.captions.generating.store.schema import FAILURES, GENERATIONS, insert_rows, migrate, split
from components.captions.generating.store.upkeep import Choice, Pruned, StoreStats, prune, read_stats
from components.captions.prompting.request import Reply


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
        query = select(func.count()).select_from(GENERATIONS)
        return int(self._database.read(lambda connection: connection.execute(query).scalar_one()))

    def import_parquet(self, path: Path, *, once: bool = False, without: Without = frozenset) -> int:
        """Merge an export into the store; returns the number of new answers.

        A file whose rows are all in the store is skipped.

        Args:
            path: the export.
            once: skip a file that was imported before also where answers were pruned since, which would restore them.
            without: returns the keys whose answers are left out; not called for a file that is skipped.
        """
        return import_parquet(self._database, path, once=once, without=without)

    def export_parquet(self, path: Path) -> int:
        """Write all answers to a Parquet file, sorted by task and key; returns their number."""
        return export_parquet(self._database, path)

    def stats(self) -> StoreStats:
        """Count the contents."""
        return read_stats(self._database)

    def prune(self, choice: Choice, *, dry_run: bool = False) -> list[Pruned]:
        """Delete the chosen rows; returns their numbers by task and model."""
        return prune(self._database, choice, dry_run=dry_run)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()

    def _pairs(self, key: ColumnElement[str], value: ColumnElement[str], keys: Iterable[str]) -> dict[str, str]:
        pairs: dict[str, str] = {}
        for block in chunked(keys, 2_000):
            query = select(key, value).where(key.in_(block))
            pairs.update(self._database.read(lambda connection, query=query: connection.execute(query).tuples().all()))  # type: ignore[misc]
        return pairs
