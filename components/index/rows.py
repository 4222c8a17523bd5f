"""The rows of an index: memory-mapped Arrow files, read in batches.

Arrow validates each batch before its first use, as a batch of a damaged or hostile file could point outside its memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.core.compute.metrics import Indices
from components.core.system.errors import InputError
from components.core.tables.files import atomic_file, content_hash
from components.core.tables.parquet_rows import DAMAGED
from components.index.facts import BUILD_AGAIN, ColumnKind, Facts, refuse_link, rows_file

_TEXT = pa.large_string()
OWN = pa.schema(
    [
        pa.field("image_id", _TEXT, nullable=False),
        pa.field("caption", _TEXT),
        pa.field("name", _TEXT),
        pa.field("file", _TEXT),
        pa.field("position", pa.int64()),
        pa.field("size", pa.int64()),
    ]
)
"""Columns of every index; the last three locate the picture, as in `components.core.tables.records.PAIRS`."""

_KINDS: dict[ColumnKind, pa.DataType] = {
    "string": _TEXT,
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}
_BATCH = 4096
"""Rows that are written, checked and read together."""


def schema_of(columns: dict[str, ColumnKind]) -> pa.Schema:
    """The schema of an index with these further columns."""
    return pa.schema([*OWN, *(pa.field(name, _KINDS[kind]) for name, kind in columns.items())])


def column_kind(kind: pa.DataType) -> ColumnKind | None:
    """The kind in which a further column is stored; None for lists and other types, which are dropped."""
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "int64"
    if pa.types.is_floating(kind):
        return "double"
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_null, pa.types.is_temporal)
    return "string" if any(is_kind(kind) for is_kind in texts) else None


def further_columns(table: pa.Table) -> dict[str, ColumnKind]:
    """The columns of a table that can be stored in addition to an index's own."""
    kinds = {field.name: column_kind(field.type) for field in table.schema if field.name not in OWN.names}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def further_names(columns: Sequence[str]) -> dict[str, str]:
    """Further columns -> their names in an index: a name of an index's own column gets `_` appended."""
    taken = {*OWN.names, *columns}
    names = {name: name for name in columns}
    for name in set(columns) & set(OWN.names):
        while names[name] in taken:
            names[name] += "_"
    return names


def fitted(table: pa.Table, columns: dict[str, ColumnKind], where: str) -> pa.Table:
    """A table with exactly an index's columns; missing ones are null."""
    schema, found = schema_of(columns), []
    for field in schema:
        if field.name not in table.column_names:
            found.append(pa.nulls(table.num_rows, field.type))
            continue
        try:
            found.append(table.column(field.name).cast(field.type))
        except pa.ArrowException:
            actual = table.schema.field(field.name).type
            raise InputError(
                f"{where}: column '{field.name}' is {actual}, the index has {field.type}: convert or rename it"
            ) from None
    return pa.table(found, schema=schema)


class Rows:
    """The rows of an index; row numbers continue from segment to segment. Damaged files raise `InputError`."""

    def __init__(self, files: Sequence[Path], counts: Sequence[int], schema: pa.Schema) -> None:
        self._files = [_Segment(path, count, schema) for path, count in zip(files, counts, strict=True)]
        self._starts = np.cumsum([0, *counts])
        self.schema = schema

    @staticmethod
    def open(folder: Path, facts: Facts) -> Rows:
        """The rows of an index."""
        files = [rows_file(folder, number) for number in range(len(facts.segments))]
        return Rows(files, [segment.rows for segment in facts.segments], schema_of(facts.columns))

    def take(self, numbers: Indices) -> pa.Table:
        owners = np.searchsorted(self._starts, numbers, side="right") - 1
        found, places = [self.schema.empty_table()], [np.empty(0, np.int64)]
        batches = (numbers - self._starts[owners]) // _BATCH
        for owner, batch in sorted(set(zip(owners.tolist(), batches.tolist(), strict=True))):
            positions = np.flatnonzero((owners == owner) & (batches == batch))
            inside = numbers[positions] - self._starts[owner] - batch * _BATCH
            found.append(pa.Table.from_batches([self._files[owner].batch(batch)]).take(inside))
            places.append(positions)
        return pa.concat_tables(found).take(np.argsort(np.concatenate(places)))

    def column(self, name: str) -> pa.ChunkedArray:
        """One column of all rows, for filters."""
        if name not in self.schema.names:
            raise InputError(f"the index has no column '{name}': it has {', '.join(self.schema.names)}")
        chunks = [batch.column(name) for file in self._files for batch in file.batches()]
        return pa.chunked_array(chunks, self.schema.field(name).type)

    def keys(self) -> npt.NDArray[np.uint64]:
        """`id_keys` of all rows."""
        found = [id_keys(batch.column("image_id")) for file in self._files for batch in file.batches()]
        return np.concatenate([np.empty(0, np.uint64), *found])


class _Segment:
    def __init__(self, path: Path, count: int, schema: pa.Schema) -> None:
        self._path, self._count = path, count
        self._validated: set[int] = set()
        refuse_link(path)
        if not path.is_file():
            raise InputError(f"{path} is missing: put it back, or {BUILD_AGAIN}")
        if not self._file.schema.equals(schema):
            raise InputError(f"{path} does not have the columns that index.json lists: {BUILD_AGAIN}")
        if self._file.num_record_batches != -(-count // _BATCH):
            raise InputError(f"{path} does not have the {count} rows that index.json lists: {BUILD_AGAIN}")

    @cached_property
    def _file(self) -> pa.ipc.RecordBatchFileReader:
        try:
            return pa.ipc.open_file(pa.memory_map(str(self._path)))
        except DAMAGED as error:
            raise self._damaged(error) from None

    def batch(self, number: int) -> pa.RecordBatch:
        """Rows from `number * _BATCH` on."""
        try:
            found = self._file.get_batch(number)
            if number not in self._validated:
                found.validate(full=True)
        except DAMAGED as error:
            raise self._damaged(error) from None
        if found.num_rows != min(_BATCH, self._count - number * _BATCH) or found.column("image_id").null_count:
            raise InputError(f"{self._path} does not have the {self._count} rows that index.json lists: {BUILD_AGAIN}")
        self._validated.add(number)
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        for number in range(-(-self._count // _BATCH)):
            yield self.batch(number)

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"{self._path} is damaged ({str(error).splitlines()[0][:120]}): {BUILD_AGAIN}")


@contextmanager
def growing_rows(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Write an Arrow file of any number of rows; yields a function that appends a table of that schema."""
    waiting = schema.empty_table()
    with atomic_file(path) as temporary, pa.ipc.new_file(str(temporary), schema) as writer:

        def append(table: pa.Table) -> None:
            nonlocal waiting
            waiting = pa.concat_tables([waiting, table])
            if whole := waiting.num_rows // _BATCH * _BATCH:
                writer.write_table(waiting.slice(0, whole).combine_chunks(), _BATCH)
                waiting = waiting.slice(whole).combine_chunks()

        yield append
        if waiting.num_rows:
            writer.write_table(waiting.combine_chunks(), _BATCH)


def id_keys(ids: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.uint64]:
    """64 bits for each image id: the value of this project's hexadecimal ids, a hash of any other id."""
    if pc.all(pc.match_substring_regex(ids, "^[0-9a-f]{16}$")).as_py():
        return np.frombuffer(bytes.fromhex("".join(ids.to_pylist())), ">u8").astype(np.uint64)
    hexadecimal = re.compile(r"[0-9a-f]{16}")
    texts = (image if hexadecimal.fullmatch(image) else content_hash(image)[:16] for image in ids.to_pylist())
    return np.array([int(text, 16) for text in texts], np.uint64)
