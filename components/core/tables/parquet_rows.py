"""Reads a user's Parquet files in batches of bounded memory, whatever their row groups, pages and dictionaries hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

_BATCH = 128 << 20
"""Most bytes of a batch, unless one row has more."""
_BUFFER = 1 << 20
_SHARED = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}


DAMAGED = (pa.ArrowException, OSError, ValueError)
"""Errors of a file that is not Parquet or is damaged; names of columns that are not UTF-8 are ValueErrors."""


@contextmanager
def opened_parquet(path: Path | str) -> Iterator[pq.ParquetFile]:
    """A Parquet file of which pages, and not whole row groups, are read into memory; errors are pyarrow's."""
    with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as stored:
        yield stored


def batches(stored: pq.ParquetFile, group: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of a row group, in batches."""
    if not stored.metadata.row_group(group).num_rows:
        return
    # A read raises on damaged metadata; to ask pyarrow for the metadata of such a column would end the process.
    next(stored.iter_batches(1, row_groups=[group], columns=list(columns), use_threads=False), None)
    numbers = [n for n in range(len(stored.schema)) if stored.schema.column(n).path.partition(".")[0] in columns]
    rows = rows_at_once(stored.metadata.row_group(group), numbers)
    yield from stored.iter_batches(rows, row_groups=[group], columns=list(columns), use_threads=False)


def rows_at_once(group: pq.RowGroupMetaData, columns: Sequence[int]) -> int:
    """The number of rows of some columns that fit in a batch.

    A column with a dictionary stores a value once for many rows, so each of its rows may be as long as all it stores.
    """
    wanted = [group.column(number) for number in columns]
    shared = sum(column.total_uncompressed_size for column in wanted if _SHARED & set(column.encodings))
    own = sum(column.total_uncompressed_size for column in wanted if not _SHARED & set(column.encodings))
    return max(1, min(1 << 16, int(_BATCH / max(1, shared + own / max(1, group.num_rows)))))
