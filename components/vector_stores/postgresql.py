"""PostgreSQL with pgvector: `postgresql://user@host/database?table=images`; passwords as psql finds them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from components.core.system.errors import InputError
from components.vector_stores.store import OpenStore, Page, StoreUrl, VectorStore, matrix

_KINDS = ("vector", "halfvec")
_COLUMNS = """
SELECT a.attname, t.typname, coalesce(i.indisprimary, false)
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY(i.indkey)
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class _PgTable:
    """A table in one snapshot, without the rows that others write meanwhile."""

    def __init__(self, connection: Any, options: dict[str, str]) -> None:
        self._connection, table = connection, options.get("table", "")
        columns = connection.execute(_COLUMNS, [table]).fetchall()
        if not columns:
            raise InputError(f"no table '{table}': name one with ?table=NAME")
        self._table = connection.execute("SELECT to_regclass(%s)::text", [table]).fetchone()[0]
        kinds = {name: kind for name, kind, _ in columns}
        self._vector = _one("vector", [name for name, kind in kinds.items() if kind in _KINDS], options, table)
        self._key = _one("key", [name for name, _, is_primary in columns if is_primary], options, table)
        for given in (self._vector, self._key):
            if given not in kinds:
                raise InputError(f"table '{table}' has no column '{given}': its columns are {', '.join(kinds)}")
        self._others = [name for name, kind in kinds.items() if kind not in (*_KINDS, "bytea") and name != self._key]

    def state(self) -> str:
        return str(self.count())

    def count(self) -> int:
        return int(self._connection.execute(f"SELECT count(*) FROM {self._table}").fetchone()[0])

    def page(self, after: Any, rows: int) -> Page:
        from psycopg import sql

        # Behind ORDER BY, a name without its table is that of a column of the result, and the key is a text there.
        key, vector, others = sql.Identifier("t", self._key), sql.Identifier("t", self._vector), self._others
        columns = [sql.SQL("{}::text").format(key), sql.SQL("{}::vector::real[]").format(vector)]
        query = sql.SQL("SELECT {} FROM {} AS t{} ORDER BY {} LIMIT {}").format(
            sql.SQL(", ").join([*columns, *(sql.Identifier("t", name) for name in others)]),
            sql.SQL(self._table),
            sql.SQL(" WHERE {} > {}").format(key, sql.Literal(after)) if after is not None else sql.SQL(""),
            key,
            sql.Literal(rows),
        )
        found = self._connection.execute(query).fetchall()
        keys = [row[0] for row in found]
        payloads = [dict(zip(others, row[2:], strict=True)) for row in found]
        return Page(keys, payloads, matrix([row[1] for row in found]), keys[-1] if keys else after)


def _one(option: str, found: list[str], options: dict[str, str], table: str) -> str:
    if option in options:
        return options[option]
    if len(found) != 1:
        what = {"vector": "columns of vectors", "key": "columns as primary key"}[option]
        raise InputError(f"table '{table}' has {len(found)} {what}: name one with ?{option}=COLUMN")
    return found[0]


@contextmanager
def _opened(url: StoreUrl) -> Iterator[OpenStore]:
    import psycopg

    with psycopg.connect(url.parts._replace(query="").geturl(), connect_timeout=10) as connection:
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield _PgTable(connection, dict(url.options))


def _faults() -> tuple[type[Exception], ...]:
    import psycopg

    return (psycopg.Error,)


STORE = VectorStore(
    package="psycopg",
    example="postgresql://user@127.0.0.1/shop?table=images",
    options=("table", "vector", "key"),
    opened=_opened,
    faults=_faults,
)
