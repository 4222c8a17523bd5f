"""Tables of people's opinions in the SQL store: blind votes, and reviews of test queries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, insert, select

from components.captions.generating.store.database import Database

LONGEST = 1000
"""Characters of a text in an opinion."""
_Record = TypeVar("_Record", bound=BaseModel)


class Opinions(Generic[_Record]):
    """The rows of one table, each with the text fields of `record`.

    Raises:
        InputError: the store cannot be reached.
    """

    def __init__(self, url: str, name: str, record: type[_Record], *, must_exist: bool = False) -> None:
        self._database = Database(url, must_exist=must_exist)
        self._record = record
        texts = (Column(field, String(LONGEST), nullable=False) for field in record.model_fields)
        self._table = Table(name, MetaData(), Column("id", Integer, primary_key=True, autoincrement=True), *texts)

    def add(self, opinion: _Record) -> None:
        """Store an opinion; it is on disk when this returns."""

        def write(connection: Connection) -> None:
            self._table.create(connection, checkfirst=True)
            connection.execute(insert(self._table).values(**opinion.model_dump()))

        self._database.write(write)

    def all(self) -> list[_Record]:
        """All opinions, oldest first."""

        def read(connection: Connection) -> list[_Record]:
            if not connection.dialect.has_table(connection, self._table.name):
                return []
            rows = connection.execute(select(self._table).order_by(self._table.c.id)).mappings()
            return [self._record(**{name: row[name] for name in self._record.model_fields}) for row in rows]

        return self._database.read(read)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


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
