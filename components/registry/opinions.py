"""Tables of people's opinions: blind votes, and reviews of test queries.

They are in a file of their own next to an SQLite store of answers, because answers can be generated again and are moved
or deleted, and opinions cannot. A PostgreSQL store holds both.
"""

from __future__ import annotations

import glob
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, insert, select

from components.captions.generating.store.database import Database

FILE = "votes.db"
"""Next to an SQLite store of answers."""
LONGEST = 1000
"""Characters of a text in an opinion."""
_Record = TypeVar("_Record", bound=BaseModel)


class Opinions(Generic[_Record]):
    """The rows of one table, each with the text fields of `record`; `url` is that of the store of answers."""

    def __init__(self, url: str, name: str, record: type[_Record]) -> None:
        self._record = record
        texts = (Column(field, String(LONGEST), nullable=False) for field in record.model_fields)
        self._table = Table(name, MetaData(), Column("id", Integer, primary_key=True, autoincrement=True), *texts)
        answers = sqlite_file(url)
        self._database = Database(url if answers is None else f"sqlite:///{answers.with_name(FILE)}")
        if answers is not None and answers.name != FILE:
            self._adopt(answers)

    def _adopt(self, answers: Path) -> None:
        """Copy, once, the rows in the store of answers and in the stores that `make captions` moved aside before."""
        if self._database.read(self._exists):
            return
        moved = sorted(answers.parent.glob(f"{glob.escape(answers.stem)}-*/{glob.escape(answers.name)}"))
        rows = list[_Record]()
        for path in (*moved, answers):
            if path.is_file():
                with closing(Database(f"sqlite:///{path}")) as old:
                    rows += old.read(self._rows)

        def write(connection: Connection) -> None:
            if not self._exists(connection):
                self._table.create(connection)
                connection.execute(insert(self._table), [row.model_dump() for row in rows])

        if rows:
            self._database.write(write)

    def add(self, opinion: _Record) -> None:
        """Store an opinion; it is on disk when this returns."""

        def write(connection: Connection) -> None:
            self._table.create(connection, checkfirst=True)
            connection.execute(insert(self._table).values(**opinion.model_dump()))

        self._database.write(write)

    def all(self) -> list[_Record]:
        """All opinions, oldest first."""

        return self._database.read(self._rows)

    def _exists(self, connection: Connection) -> bool:
        return bool(connection.dialect.has_table(connection, self._table.name))

    def _rows(self, connection: Connection) -> list[_Record]:
        if not self._exists(connection):
            return []
        rows = connection.execute(select(self._table).order_by(self._table.c.id)).mappings()
        return [self._record(**{name: row[name] for name in self._record.model_fields}) for row in rows]

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def sqlite_file(url: str) -> Path | None:
    """The file of an SQLite store; None if it is another database."""
    scheme, _, file = url.partition(":///")
    return Path(file.partition("?")[0]) if scheme.startswith("sqlite") and file else None


def now() -> str:
    """The current time in UTC, in seconds."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def share_interval(hits: int, count: int) -> tuple[float, float]:
    """The 95% interval of a share (Wilson): (0, 1) without observations."""
    if not count:
        return 0.0, 1.0
    from scipy.stats import binomtest

    low, high = binomtest(hits, count).proportion_ci(method="wilson")
    return float(low), float(high)
