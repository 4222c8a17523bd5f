"""How an index stores and searches its vectors: exactly, in a memory-mapped file, or in a table of LanceDB.

`exact` is `vectors.npy`, which is memory-mapped, and `rows.parquet`; every vector is compared with a query. A change
writes a new folder, which replaces the old one in one step.

`lance` is a table of LanceDB, for more images than exact search is fast for. LanceDB adds, removes, filters and keeps
versions. From `INDEXED` rows on its own index gives candidates, which it compares by their whole vectors; vectors that
were added later are searched too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

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
from components.serving.index.image_index import (
    BUILD_AGAIN,
    CHUNK,
    FACTS,
    VECTOR,
    Chunk,
    Facts,
    Found,
    ImageIndex,
    nothing,
)

VECTORS, ROWS = "vectors.npy", "rows.parquet"
_TYPE = np.dtype("<f4")
TABLE = "rows"
INDEXED = 100_000
"""Rows from which on LanceDB makes an index; it compares every vector of fewer."""
_COMPARED = 50
"""So many candidates for each result are compared by their whole vectors."""
_ROW = "_rowid"
_FAULTS = (OSError, RuntimeError, ValueError)


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


class LanceIndex(ImageIndex):
    """See `ImageIndex`; row numbers are LanceDB's, and have gaps."""

    def __init__(self, folder: Path, facts: Facts) -> None:
        super().__init__(folder, facts)
        self._table = _opened(folder)
        self._table.checkout(self._table.version)
        stored = self._table.schema
        if VECTOR not in stored.names or stored.field(VECTOR).type != pa.list_(pa.float32(), facts.dim):
            raise InputError(f"{folder} has no vectors of {facts.dim} numbers, as index.json states: {BUILD_AGAIN}")
        self.schema = stored.remove(stored.get_field_index(VECTOR))

    def __len__(self) -> int:
        return int(self._table.count_rows())

    def best(self, queries: Features, k: int, where: str | None) -> Found:
        """Approximate from `INDEXED` rows on."""
        best = nothing(len(queries), k)
        for query, scores, numbers in zip(queries, best.scores, best.rows, strict=True):
            wanted = self._table.search(query, vector_column_name=VECTOR).distance_type("cosine").limit(k)
            found = _arrow(wanted.refine_factor(_COMPARED).select(["_distance"]).with_row_id(True), where)
            scores[: found.num_rows] = 1 - found["_distance"].to_numpy()
            numbers[: found.num_rows] = found[_ROW].to_numpy()
        return best

    def take(self, numbers: Indices) -> Chunk:
        distinct, places = np.unique(numbers, return_inverse=True)
        found = self._table.take_row_ids(distinct.tolist()).with_row_id().to_arrow()
        if found.num_rows < len(distinct):
            raise InputError(f"{self.folder} lacks some of the rows {distinct[0]} to {distinct[-1]}: correct them")
        return self._chunk(found.take(np.argsort(found[_ROW].to_numpy())[places]))

    def column(self, name: str) -> pa.ChunkedArray:
        return self._table.search().select([name]).to_arrow()[name]

    def numbers(self, condition: str | None = None) -> Indices:
        """The SQL is DataFusion's."""
        found = _arrow(self._table.search().select(["image_id"]).with_row_id(True), condition)
        return np.sort(found[_ROW].to_numpy().astype(np.int64))

    def chunks(self) -> Iterator[Chunk]:
        for batch in self._table.search().to_batches(batch_size=CHUNK):
            yield self._chunk(pa.Table.from_batches([batch]))

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Each chunk is a version, and those before a failure stay."""
        table = _opened(self.folder)
        for chunk in chunks:
            table.add(_with_vectors(chunk))
        _finish(table)

    def remove(self, condition: str) -> None:
        table = _opened(self.folder)
        table.delete(condition)
        _finish(table)

    def _chunk(self, table: pa.Table) -> Chunk:
        vectors = table[VECTOR].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        return table.select(self.schema.names), vectors.reshape(table.num_rows, self.facts.dim)


def create_lance(folder: Path, facts: Facts, chunks: Iterable[Chunk]) -> None:
    """Write an index of at least one chunk in place of what `folder` holds."""
    import lancedb

    with atomic_folder(folder) as temporary:
        waiting = map(_with_vectors, chunks)
        table = lancedb.connect(temporary).create_table(TABLE, next(waiting))
        for more in waiting:
            table.add(more)
        _finish(table)
        write_record(temporary / FACTS, facts)


def _opened(folder: Path) -> Any:
    import lancedb

    try:
        return lancedb.connect(folder).open_table(TABLE)
    except _FAULTS as error:
        raise InputError(f"{folder} has no table of LanceDB ({_line(error)}): {BUILD_AGAIN}") from None


def _arrow(query: Any, condition: str | None) -> pa.Table:
    try:
        return (query if condition is None else query.where(condition)).to_arrow()
    except _FAULTS as error:
        raise InputError(f"condition '{str(condition)[:200]}' cannot be read ({_line(error)}): correct it") from None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _with_vectors(chunk: Chunk) -> pa.Table:
    rows, vectors = chunk
    flat = pa.array(np.ascontiguousarray(vectors, np.float32).ravel())
    return rows.append_column(VECTOR, pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]))


def _finish(table: Any) -> None:
    """Join small files, and index the vectors if there are many."""
    table.optimize()
    if table.count_rows() >= INDEXED and not table.list_indices():
        table.create_index(metric="cosine", vector_column_name=VECTOR)
