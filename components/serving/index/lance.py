"""Kind `lance`: a table of LanceDB, for more images than exact search is fast for.

LanceDB adds, removes, filters and keeps versions. From `INDEXED` rows on its own index gives candidates, which it
compares by their whole vectors; vectors that were added later are searched too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError
from components.core.tables.files import atomic_folder
from components.core.tables.formats import write_record
from components.serving.index.facts import BUILD_AGAIN, CHUNK, FACTS, VECTOR, Chunk, Facts
from components.serving.index.image_index import Found, ImageIndex, nothing

TABLE = "rows"
INDEXED = 100_000
"""Rows from which on LanceDB makes an index; it compares every vector of fewer."""
_COMPARED = 50
"""So many candidates for each result are compared by their whole vectors."""
_ROW = "_rowid"
_FAULTS = (OSError, RuntimeError, ValueError)


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
