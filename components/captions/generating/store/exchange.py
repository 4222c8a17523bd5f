"""Exports of the store as Parquet, written and merged block by block, so that memory use stays constant."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Connection, collate, delete, func, insert, select

from components.captions.generating.store.database import RESUME, Database
from components.captions.generating.store.schema import EXPORT, GENERATIONS, IMPORTS, PRUNED, Row, insert_rows, storable
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.core.tables.files import atomic_file, file_hash

_WRITTEN = 20_000
_READ = 10_000
Without = Callable[[], Collection[str]]


def export_parquet(database: Database, path: Path) -> int:
    """See `GenerationStore.export_parquet`."""
    total = database.read(lambda connection: connection.execute(select(func.count()).select_from(GENERATIONS)).scalar())
    written = 0
    try:
        with (
            atomic_file(path) as temporary,
            pq.ParquetWriter(temporary, EXPORT, compression="zstd") as writer,
            bar("export", total, "row") as progress,
        ):
            for rows in _stream(database):
                columns = zip(*rows, strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, EXPORT, strict=True)]
                writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=EXPORT))
                written += len(rows)
                progress.update(len(rows))
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror or error}): choose another place") from None
    return written


def import_parquet(database: Database, path: Path, *, once: bool = False, without: Without = frozenset) -> int:
    """See `GenerationStore.import_parquet`."""
    try:
        sha256 = file_hash(path)
        query = select(IMPORTS.c.rows).where(IMPORTS.c.sha256 == sha256)
        imported = database.read(lambda connection: connection.execute(query).scalar())
        if imported is not None and (once or imported != PRUNED):
            return 0
        new, total, left_out = 0, 0, without()
        for block in _rows(path):
            rows = [row for row in block if row["key"] not in left_out]
            new += database.write(lambda connection, rows=rows: insert_rows(connection, rows))  # type: ignore[misc]
            total += len(rows)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: restore it from git, or set synthesize.cached_answers to null") from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines()[0][:120]
        raise InputError(f"{path} is not an export of a generation store ({reason}): name another file") from None

    def remember(connection: Connection) -> None:
        connection.execute(delete(IMPORTS).where(IMPORTS.c.sha256 == sha256))
        connection.execute(insert(IMPORTS), {"sha256": sha256, "rows": total, "at": time.time()})

    database.write(remember)
    return new


def _stream(database: Database) -> Iterator[Sequence[Any]]:
    columns = (GENERATIONS.c.task, GENERATIONS.c.key)
    byte_order = "BINARY" if database.is_sqlite else "C"
    query = select(GENERATIONS).order_by(*(collate(column, byte_order) for column in columns))
    with database.explaining("failed", RESUME), database.streaming() as connection:
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
