"""The store's tables as the newest migration leaves them, and the columns of an export."""

from __future__ import annotations

import pyarrow as pa
from sqlalchemy import Column, Double, Integer, MetaData, String, Table

HEAD = "0002"
"""The newest file of `components/captions/store/migrations/versions/`."""

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
"""Questions without an answer, and why; `at` is in seconds since 1970 by the database's clock, as all times below."""

CLAIMS = Table(
    "claims",
    METADATA,
    Column("key", String(64), primary_key=True),
    Column("worker", String(255), nullable=False),
    Column("lease_end", Double, nullable=False),
    sqlite_with_rowid=False,
)
"""Questions that a worker is asking; a row whose lease has ended is anyone's."""

IMPORTS = Table(
    "imports",
    METADATA,
    Column("sha256", String(64), primary_key=True),
    Column("rows", Integer, nullable=False),
    Column("at", Double, nullable=False),
)
"""Exports that were merged. Their every row is in the store, unless `rows` is `PRUNED`."""

PRUNED = -1
"""In place of the number of rows: some of them may have been pruned since."""

EXPORT = pa.schema([(column.name, pa.int32() if column.name == "attempt" else pa.string()) for column in GENERATIONS.c])
"""An export: `GENERATIONS` as Parquet, sorted by task and key."""
