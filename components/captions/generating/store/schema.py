"""The store's tables, their creation and migration, and the columns of an export."""

from __future__ import annotations

import pyarrow as pa
from sqlalchemy import Column, Connection, Double, Integer, MetaData, String, Table, delete, inspect, select, text

from components.captions.generating.store.database import Database
from components.core.system.errors import InputError

VERSION = "0003"
"""Of the tables. 0001 has only `generations`; 0002 also had a table `claims`, which nothing reads any more."""

METADATA = MetaData()

GENERATIONS = Table(
    "generations",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("task", String(64), nullable=False, index=True),
    Column("prompt_sha256", String(64), nullable=False),
    Column("model", String(200), nullable=False),
    Column("sampling", String(200), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("answer", String, nullable=False),
    Column("created", String(32), nullable=False),
)
"""Answers; `created` is UTC in ISO format, to the second."""

FAILURES = Table(
    "failures",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("task", String(64), nullable=False),
    Column("model", String(200), nullable=False),
    Column("reason", String, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("at", Double, nullable=False),
)
"""Questions without an answer, and the reason; `at` is in seconds since 1970, as in `IMPORTS`."""

IMPORTS = Table(
    "imports",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("rows", Integer, nullable=False),
    Column("at", Double, nullable=False),
)
"""Exports that were merged. All their rows are in the store, unless `rows` is `PRUNED`."""

PRUNED = -1
"""In place of the number of rows: some of them may have been pruned since."""

EXPORT = pa.schema([(column.name, pa.int32() if column.name == "attempt" else pa.string()) for column in GENERATIONS.c])
"""An export: `GENERATIONS` as Parquet, sorted by task and key."""

_VERSIONS = Table("alembic_version", METADATA, Column("version_num", String(32), primary_key=True))
"""One row, `VERSION`; stores of versions up to 0002 were made with Alembic, hence the name."""


def migrate(database: Database) -> None:
    """Create or migrate the tables where they are not of `VERSION`; safe when several processes open a new store.

    Raises:
        InputError: the database cannot be reached, or its tables are from a newer version.
    """
    with database.opening():
        with database.streaming() as connection:
            if _version(connection) == VERSION:
                return
        with database.migrating() as connection:
            version = _version(connection)
            if version is not None and version > VERSION:
                raise InputError(
                    f"generation store {database.shown} was made by a newer cliptune (its tables have version "
                    f"{version}, this one reads {VERSION}): update cliptune"
                )
            if version != VERSION:
                METADATA.create_all(connection)
                connection.execute(text("DROP TABLE IF EXISTS claims"))
                connection.execute(delete(_VERSIONS))
                connection.execute(_VERSIONS.insert(), {"version_num": VERSION})


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    return connection.execute(select(_VERSIONS.c.version_num)).scalar()
