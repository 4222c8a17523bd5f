"""The generation store: every answer of every language model, kept under what was asked, never asked twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from more_itertools import chunked
from sqlalchemy import TextClause, func, select, text

from components.captions.asking.claims import Claims
from components.captions.request import Reply
from components.captions.store.database import Database
from components.captions.store.exchange import Without, export_parquet, import_parquet
from components.captions.store.migration import migrate
from components.captions.store.pruning import Choice, Pruned, prune
from components.captions.store.rows import split
from components.captions.store.schema import GENERATIONS
from components.captions.store.stats import Stats, read_stats

_LOOK_UP_SIZE = 2_000


class GenerationStore:
    """Answers and failures in a SQL database, SQLite by default, PostgreSQL by URL, shared by any number of workers.

    Every method raises `InputError` when the database refuses or stays away. While a server restarts, methods wait.

    >>> from components.captions.request import Reply, Request, Sampling
    >>> store = GenerationStore(f"sqlite:///{folder}/generations.db")
    >>> request = Request("rewrite", (("user", "Say otherwise: a dog"),), "a model", Sampling(0.7, 0.9, 64), 0)
    >>> store.add([Reply(request, "one hound")])
    >>> store.answers([request.key])[request.key]
    'one hound'
    >>> store.close()
    """

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        """Open the store, making or migrating its tables where they are not of this version.

        Args:
            url: SQLAlchemy URL of the database.
            must_exist: make no new file.

        Raises:
            InputError: the URL is wrong, the database cannot be reached, or a newer version made the store.
        """
        self._database = Database(url, must_exist=must_exist)
        self._claims: list[Claims] = []
        dialect = self._database.dialect
        self._answers = text(f"SELECT key, answer FROM generations WHERE {dialect.among}")
        self._failures = text(f"SELECT key, reason FROM failures WHERE {dialect.among} AND at >= :since")
        self._now = text(f"SELECT {dialect.now}")
        migrate(self._database)

    def answers(self, keys: Iterable[str]) -> dict[str, str]:
        """The answers that are stored for `keys`, looked up in bulk."""
        found: dict[str, str] = {}
        for block in chunked(keys, _LOOK_UP_SIZE):
            found.update(self._pairs(self._answers, {"keys": self._database.dialect.bind(block)}))
        return found

    def failures(self, keys: Iterable[str], since: datetime) -> dict[str, str]:
        """Why those of `keys` that failed at `since` or later have no answer."""
        found: dict[str, str] = {}
        for block in chunked(keys, _LOOK_UP_SIZE):
            bound = {"keys": self._database.dialect.bind(block), "since": since.timestamp()}
            found.update(self._pairs(self._failures, bound))
        return found

    def now(self) -> datetime:
        """The time by the database's clock, which all workers share."""
        return as_moment(float(self._database.read(lambda connection: connection.execute(self._now).scalar_one())))

    def add(self, replies: Sequence[Reply]) -> None:
        """Keep answers and failures and end the claims on them, in one transaction.

        An answer that is there already stays; a failure of an answered question is dropped.
        """
        answers, failures = split(replies)
        if not answers and not failures:
            return
        workers = [claims.worker for claims in self._claims]
        dialect = self._database.dialect
        self._database.write(lambda connection: dialect.add(connection, answers, failures, workers))
        for claims in self._claims:
            claims.settle(reply.request.key for reply in replies)

    def claims(self, lease_s: float = 60.0) -> Claims:
        """What this worker takes to ask, as a context manager; another host has it after `lease_s` without a sign."""
        claims = Claims(self._database, lease_s)
        self._claims = [*(one for one in self._claims if not one.ended), claims]
        return claims

    def count(self) -> int:
        """How many answers are stored."""
        query = select(func.count()).select_from(GENERATIONS)
        return int(self._database.read(lambda connection: connection.execute(query).scalar_one()))

    def import_parquet(self, path: Path, *, once: bool = False, without: Without = frozenset) -> int:
        """Merge an export into the store; returns how many answers were new.

        Args:
            path: the export.
            once: leave a file alone that was imported before, even if answers were pruned since.
            without: gives the keys whose answers are left out; not asked for a file that is left alone.

        Raises:
            InputError: the file is missing, cannot be read or is no export.
        """
        return import_parquet(self._database, path, once=once, without=without)

    def export_parquet(self, path: Path) -> int:
        """Write all answers to a Parquet file, sorted by task and key; returns how many.

        Raises:
            InputError: the file cannot be written.
        """
        return export_parquet(self._database, path)

    def stats(self) -> Stats:
        """What the store holds, counted."""
        return read_stats(self._database)

    def prune(self, choice: Choice, *, dry_run: bool = False) -> list[Pruned]:
        """Delete what is chosen; returns what went, by task and model.

        Raises:
            InputError: nothing is chosen.
        """
        return prune(self._database, choice, dry_run=dry_run)

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

    def _pairs(self, query: TextClause, bound: dict[str, Any]) -> list[tuple[str, str]]:
        return self._database.read(lambda found: [(row[0], row[1]) for row in found.execute(query, bound)])


def as_moment(seconds: float) -> datetime:
    """The moment `seconds` after 1970, never later than that, so that what fails at this very moment has failed since.

    The product is rounded, perhaps upwards past the next microsecond, hence one microsecond less than it says.
    """
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(seconds * 1_000_000) - 1)
