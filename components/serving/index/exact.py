"""Kind `exact`: `vectors.npy`, which is memory-mapped, and `rows.parquet`; every vector is compared with a query.

A change writes a new folder, which replaces the old one in one step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.compute.devices import FeatureGallery, Values, placed
from components.core.compute.metrics import Features, Indices, in_blocks, top_columns
from components.core.system.errors import InputError
from components.core.tables.arrays import mapped_array, rows_of
from components.core.tables.files import atomic_folder
from components.core.tables.formats import write_record
from components.core.tables.parquet_rows import DAMAGED
from components.serving.index.facts import BUILD_AGAIN, CHUNK, FACTS, Chunk, Facts
from components.serving.index.image_index import Found, ImageIndex, nothing

VECTORS, ROWS = "vectors.npy", "rows.parquet"
_TYPE = np.dtype("<f4")


class ExactIndex(ImageIndex):
    """See `ImageIndex`; rows have the numbers 0 to n - 1, and ties go to the earlier row."""

    def __init__(self, folder: Path, facts: Facts) -> None:
        super().__init__(folder, facts)
        self.vectors: Features = mapped_array(folder / VECTORS, BUILD_AGAIN)
        try:
            # It stays open: another process may replace the folder.
            self._file = pq.ParquetFile(folder / ROWS)
        except DAMAGED as error:
            raise self._damaged(error) from None
        self.schema, rows = self._file.schema_arrow, self._file.metadata.num_rows
        if (self.vectors.dtype, *self.vectors.shape, rows) != (_TYPE, facts.rows, facts.dim, facts.rows):
            raise InputError(f"{folder} does not hold the {facts.rows} rows that index.json states: {BUILD_AGAIN}")
        self._gallery = FeatureGallery(self.vectors, "cpu")

    def to(self, device: str) -> ExactIndex:
        """Compare on this device, if the vectors fit."""
        self._gallery = FeatureGallery(self.vectors, device)
        return self

    def __len__(self) -> int:
        return len(self.vectors)

    def best(self, queries: Features, k: int, where: str | None) -> Found:
        rows = self.numbers(where)
        count = min(k, len(rows))
        others = None if where is None else placed(np.delete(np.arange(len(self)), rows), self._gallery.device)

        def columns(part: slice) -> Values:
            similarity = self._gallery.similarities(queries[part])
            if others is not None:
                similarity[:, others] = -np.inf
            return top_columns(similarity, count)

        found = nothing(len(queries), k)
        if count:
            found.rows[:, :count] = in_blocks(len(queries), self._gallery, columns)
        for query, scores, numbers in zip(queries, found.scores, found.rows, strict=True):
            scores[:count] = rows_of(self.vectors, numbers[:count]) @ query
        return found

    def take(self, numbers: Indices) -> Chunk:
        return self._table.take(self._existing(numbers)), rows_of(self.vectors, numbers)

    def column(self, name: str) -> pa.ChunkedArray:
        return self._table[name]

    def numbers(self, condition: str | None = None) -> Indices:
        """The SQL is DuckDB's."""
        everything = np.arange(len(self))
        if condition is None:
            return everything
        import duckdb

        with duckdb.connect(config={"enable_external_access": "false"}) as connection:
            connection.register("stored", self._table.append_column("_row", pa.array(everything)))
            try:
                found = connection.execute(f"SELECT _row FROM stored WHERE ({condition}) ORDER BY _row").fetchnumpy()
            except duckdb.Error as error:
                reason = " ".join(str(error).split())[:200]
                raise InputError(f"condition '{condition}' cannot be read ({reason}): correct it") from None
        return np.asarray(found["_row"], np.int64)

    def chunks(self) -> Iterator[Chunk]:
        return self._parts(self.numbers())

    def add(self, chunks: Iterable[Chunk]) -> None:
        create_exact(self.folder, self.facts, chain(self.chunks(), chunks))

    def remove(self, condition: str) -> None:
        kept = np.setdiff1d(self.numbers(), self.numbers(condition))
        create_exact(self.folder, self.facts, self._parts(kept))

    def _parts(self, numbers: Indices) -> Iterator[Chunk]:
        return map(self.take, np.split(numbers, range(CHUNK, len(numbers), CHUNK)))

    @cached_property
    def _table(self) -> pa.Table:
        try:
            return self._file.read()
        except DAMAGED as error:
            raise self._damaged(error) from None

    def _existing(self, numbers: Indices) -> Indices:
        if numbers.size and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise InputError(
                f"{self.folder} has rows 0 to {len(self) - 1}, not {numbers.min()} to {numbers.max()}: correct them"
            )
        return numbers

    def _damaged(self, error: Exception) -> InputError:
        reason = str(error).splitlines()[0][:120]
        return InputError(f"{self.folder / ROWS} is missing or damaged ({reason}): {BUILD_AGAIN}")


def create_exact(folder: Path, facts: Facts, chunks: Iterable[Chunk]) -> None:
    """Write an index of at least one chunk in place of what `folder` holds."""
    with atomic_folder(folder) as temporary:
        waiting, count = iter(chunks), 0
        first = next(waiting)
        with pq.ParquetWriter(temporary / ROWS, first[0].schema) as writer, (temporary / VECTORS).open("wb") as file:
            header = _write_header(file, 0, facts.dim)
            for rows, vectors in chain([first], waiting):
                writer.write_table(rows)
                file.write(np.ascontiguousarray(vectors, _TYPE).data)
                count += len(vectors)
            file.seek(0)
            # NumPy leaves room in the header for the first axis to grow.
            assert _write_header(file, count, facts.dim) == header
        write_record(temporary / FACTS, facts.model_copy(update={"rows": count}))


def _write_header(file: BinaryIO, rows: int, dim: int) -> int:
    """Write the header of a `.npy`; returns its size."""
    np.lib.format.write_array_header_1_0(file, {"descr": _TYPE.str, "fortran_order": False, "shape": (rows, dim)})
    return file.tell()
