"""Reviews of the written test queries by people, and the share of queries that are right.

They are in a file of their own next to an SQLite store of answers, because answers can be generated again and are moved
or deleted, and reviews cannot. A PostgreSQL store holds both.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, Field
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, insert, select

from components.captions.generating.store.database import Database
from components.core.tables.folders import TEST_SET
from components.core.tables.formats import REVIEWS, refuse_newer
from components.core.tables.written_queries import WrittenQuery, frozen_hash, read_written_queries
from components.evaluation.scoring.intervals import Interval, share_sequence

ALL = "all"
FILE = "reviews.db"
"""Next to an SQLite store of answers."""
FEWEST_PEOPLE = 30
"""With fewer people a share is that of their verdicts: others may differ from them."""
LONGEST = 1000
"""Characters of a text in a review."""
_EARLIER_FILE = "votes.db"
"""Where an earlier version kept reviews; it is only read."""


class Review(BaseModel):
    """A person's verdict on one query.

    Attributes:
        time: time of the review, UTC.
        test_set: hash of the test set, `frozen_hash`.
        caption, query, kind: identify the query in the test set.
    """

    time: str = Field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
    user: str = Field(max_length=LONGEST)
    test_set: str
    caption: str
    query: str
    kind: str
    verdict: Literal["right", "wrong"]


class Reviewed(BaseModel):
    """The share of a kind of queries that people found right.

    Attributes:
        kind: the kind, or `all`.
        low, high: 95% interval of the share, which holds at every look (`share_sequence`).
    """

    kind: str
    read: int
    right: int
    people: int
    share: float
    low: float
    high: float

    def __str__(self) -> str:
        """The result in one line.

        >>> str(Reviewed(kind="all", read=100, right=97, people=1, share=0.97, low=0.886, high=0.999))
        '97 of 100 read test queries are right, 97% [89%, 100%], as one person judges'
        """
        if not self.read:
            return "no sample of the test queries was read"
        share = f"{self.share:.0%} [{self.low:.0%}, {self.high:.0%}]"
        judges = "one person judges" if self.people == 1 else f"{self.people} people judge"
        few = f" (fewer than {FEWEST_PEOPLE} do not speak for others)" if 1 < self.people < FEWEST_PEOPLE else ""
        return f"{self.right} of {self.read} read test queries are right, {share}, as {judges}{few}"


_TEXTS = (Column(name, String(LONGEST), nullable=False) for name in Review.model_fields)
_TABLE = Table("reviews", MetaData(), Column("id", Integer, primary_key=True, autoincrement=True), *_TEXTS)


class Reviews:
    """The reviews in a store of answers; raises InputError if it cannot be reached."""

    def __init__(self, url: str) -> None:
        answers = _sqlite_file(url)
        self._database = Database(url if answers is None else f"sqlite:///{answers.with_name(FILE)}")
        if answers is not None and answers.name != FILE:
            self._adopt(answers)

    def _adopt(self, answers: Path) -> None:
        """Copy, once, the reviews that earlier versions kept with votes, or in stores of answers."""
        if self._database.read(_exists):
            return
        moved = sorted(answers.parent.glob(f"{glob.escape(answers.stem)}-*/{glob.escape(answers.name)}"))
        rows = list[Review]()
        for path in (*moved, answers, answers.with_name(_EARLIER_FILE)):
            if path.is_file():
                with closing(Database(f"sqlite:///{path}")) as old:
                    rows += old.read(_rows)

        def write(connection: Connection) -> None:
            if not _exists(connection):
                _TABLE.create(connection)
                connection.execute(insert(_TABLE), [row.model_dump() for row in rows])

        if rows:
            self._database.write(write)

    def add(self, review: Review) -> None:
        """Store a review; it is on disk when this returns."""

        def write(connection: Connection) -> None:
            _TABLE.create(connection, checkfirst=True)
            connection.execute(insert(_TABLE).values(**review.model_dump()))

        self._database.write(write)

    def all(self) -> list[Review]:
        """All reviews, oldest first."""
        return self._database.read(_rows)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def _exists(connection: Connection) -> bool:
    if connection.dialect.name == "sqlite":
        number = connection.exec_driver_sql("PRAGMA user_version").scalar()
        refuse_newer(f"the file of reviews, {FILE},", number, REVIEWS)
    return bool(connection.dialect.has_table(connection, _TABLE.name))


def _rows(connection: Connection) -> list[Review]:
    if not _exists(connection):
        return []
    rows = connection.execute(select(_TABLE).order_by(_TABLE.c.id)).mappings()
    return [Review(**{name: row[name] for name in Review.model_fields}) for row in rows]


def _sqlite_file(url: str) -> Path | None:
    """The file of an SQLite store; None if it is another database."""
    scheme, _, file = url.partition(":///")
    return Path(file.partition("?")[0]) if scheme.startswith("sqlite") and file else None


def key_of(query: WrittenQuery | Review) -> tuple[str, str, str]:
    """What identifies a query in its test set; texts are cut as the store cuts them."""
    return query.kind, query.caption[:LONGEST], query.query[:LONGEST]


def verdicts(reviews: Iterable[Review], test_set: str) -> dict[tuple[str, str, str], Review]:
    """The last review of each query of the test set with this hash."""
    return {key_of(review): review for review in reviews if review.test_set == test_set}


def reviewed(given: dict[tuple[str, str, str], Review]) -> list[Reviewed]:
    """The shares of `verdicts` by kind, sorted, and of all queries last; empty without verdicts."""
    kinds = sorted({kind for kind, _, _ in given})
    return [_share(kind, [review for review in given.values() if kind in (review.kind, ALL)])
            for kind in [*kinds, *([ALL] if kinds else [])]]  # fmt: skip


def read_reviewed(store: str, folder: Path = TEST_SET) -> Reviewed | None:
    """The share of all queries of the current test set; None without a test set."""
    if not read_written_queries(folder):
        return None
    with closing(Reviews(store)) as reviews:
        shares = reviewed(verdicts(reviews.all(), frozen_hash(folder)))
    return shares[-1] if shares else _share(ALL, [])


def _share(kind: str, given: Sequence[Review]) -> Reviewed:
    hits = np.array([float(review.verdict == "right") for review in given])
    people, owners = np.unique([review.user for review in given], return_inverse=True)
    span = Interval(0.0, 0.0, 1.0)
    if len(given):
        span = share_sequence(hits, owners if len(people) >= FEWEST_PEOPLE else None)
    counts = {"read": len(given), "right": int(hits.sum()), "people": len(people)}
    return Reviewed(kind=kind, **counts, share=span.value, low=span.low, high=span.high)
