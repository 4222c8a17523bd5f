"""PostgreSQL with pgvector: `postgresql://user@host/database?table=images`; passwords as psql finds them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from components.core.system.errors import InputError
from components.data.vector_databases.store import OpenStore, Page, StoreUrl, VectorStore

_KINDS = ("vector", "halfvec")
_OPTIONS = ("table", "vector", "key", "where")
_COLUMNS = """
SELECT a.attname, t.typname, coalesce(i.indisprimary, false) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY(i.indkey)
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


class _PgTable:
    """A table in one snapshot, without the rows that others write meanwhile."""

    def __init__(self, connection: Any, options: Mapping[str, str]) -> None:
        from psycopg import sql

        self._connection, table = connection, options.get("table", "")
        columns = connection.execute(_COLUMNS, [table]).fetchall()
        if not columns:
            raise InputError(f"no table '{table}': name one with table=NAME")
        kinds = {name: kind for name, kind, _ in columns}
        self._vector = _one("vector", [name for name, kind in kinds.items() if kind in _KINDS], options, table)
        primary = [name for name, _, is_primary in columns if is_primary]
        self._key = _one("key", primary, options, table)
        for given in (self._vector, self._key):
            if given not in kinds:
                raise InputError(f"table '{table}' has no column '{given}': its columns are {', '.join(kinds)}")
        self._others = [name for name, kind in kinds.items() if kind not in (*_KINDS, "bytea")]
        name = connection.execute("SELECT to_regclass(%s)::text", [table]).fetchone()[0]
        # A line break ends a comment in the condition.
        self._rows = sql.SQL("FROM {} AS t WHERE ({}\n)").format(sql.SQL(name), sql.SQL(options.get("where", "true")))  # type: ignore[arg-type]
        (self._count,) = self._select("count(*)", options)
        if primary != [self._key]:
            self._check_key(options)

    def _select(self, what: str, options: Mapping[str, str]) -> tuple[Any, ...]:
        import psycopg
        from psycopg import sql

        try:
            query = sql.SQL("SELECT " + what + " ").format(key=sql.Identifier("t", self._key)) + self._rows  # type: ignore[arg-type]
            found: tuple[Any, ...] = self._connection.execute(query).fetchone()
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            if "where" not in options:
                raise
            raise InputError(f"where={options['where']}: {str(error).splitlines()[0]}") from None
        return found

    def _check_key(self, options: Mapping[str, str]) -> None:
        """Rows are read in the order of the key, each behind the last one."""
        given, different = self._select("count({key}), count(DISTINCT {key})", options)
        if given < self._count:
            raise InputError(f"column {self._key} is NULL in {self._count - given:,} rows: name another by key=COLUMN")
        if different < given:
            raise InputError(
                f"column {self._key} is not unique ({given:,} rows have {different:,} values): name another by "
                "key=COLUMN"
            )

    def count(self) -> int:
        return int(self._count)

    def page(self, after: Any, rows: int) -> Page:
        from psycopg import sql

        # Behind ORDER BY, a name without its table is that of a column of the result, and the key is a text there.
        key, vector, others = sql.Identifier("t", self._key), sql.Identifier("t", self._vector), self._others
        columns = [sql.SQL("{}::text").format(key), sql.SQL("{}::vector::real[]").format(vector)]
        query = sql.SQL("SELECT {} {}{} ORDER BY {} LIMIT {}").format(
            sql.SQL(", ").join([*columns, *(sql.Identifier("t", name) for name in others)]),
            self._rows,
            sql.SQL(" AND {} > {}").format(key, sql.Literal(after)) if after is not None else sql.SQL(""),
            key,
            sql.Literal(rows),
        )
        found = self._connection.execute(query).fetchall()
        keys = [row[0] for row in found]
        payloads = [dict(zip(others, row[2:], strict=True)) for row in found]
        return Page.of(keys, payloads, [row[1] for row in found], keys[-1] if keys else after)


def _one(option: str, found: list[str], options: Mapping[str, str], table: str) -> str:
    if option in options:
        return options[option]
    if len(found) != 1:
        what = {"vector": "columns of vectors", "key": "columns as primary key"}[option]
        raise InputError(f"table '{table}' has {len(found)} {what}: name one with {option}=COLUMN")
    return found[0]


@contextmanager
def _opened(url: StoreUrl) -> Iterator[OpenStore]:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    # SQLAlchemy's URLs name a driver.
    address = f"postgresql://{url.parts.netloc}{url.parts.path}"
    given = {name: value for name, value in url.options.items() if name not in _OPTIONS}
    wanted: dict[str, Any] = {"connect_timeout": "10", **conninfo_to_dict(address), **given}
    with psycopg.connect(**wanted) as connection:
        connection.read_only = True
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        yield _PgTable(connection, url.options)


def _faults() -> tuple[type[Exception], ...]:
    import psycopg

    return (psycopg.Error,)


def _library_options() -> Collection[str]:
    from psycopg.pq import Conninfo

    return [option.keyword.decode() for option in Conninfo.get_defaults()]


STORE = VectorStore(
    package="psycopg",
    example="postgresql://user@127.0.0.1/shop?table=images",
    options=_OPTIONS,
    opened=_opened,
    faults=_faults,
    library_options=_library_options,
)
