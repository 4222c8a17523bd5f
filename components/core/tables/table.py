"""Parquet tables with a checked schema; stages read and write all their tables through `Table`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from components.core.system.errors import InputError
from components.core.tables.files import atomic_file
from components.core.tables.parquet_rows import DAMAGED

Append = Callable[[dict[str, list[object]] | pa.Table], None]
"""Appends columns to a table that is being written."""


@dataclass(frozen=True)
class Table:
    """A named table: its Arrow schema; non-nullable fields may hold neither null nor empty text.

    Nullable columns may be omitted.

    Examples:
        >>> captions = Table("captions", pa.schema([pa.field("caption", pa.string(), nullable=False)]))
        >>> captions.write(folder / "captions.parquet", {"caption": ["a dog", "a cat"]})
        >>> captions.read(folder / "captions.parquet")["caption"].to_pylist()
        ['a dog', 'a cat']
        >>> captions.write(folder / "captions.parquet", {"caption": ["a dog", ""]})
        Traceback (most recent call last):
            ...
        components.core.system.errors.InputError: ...captions.parquet: row 1 has no 'caption': fix or remove the row
    """

    name: str
    schema: pa.Schema

    def write(self, path: Path, columns: dict[str, list[object]] | pa.Table) -> None:
        """Write `columns` to `path` as Parquet, atomically."""
        table = columns if isinstance(columns, pa.Table) else self._table(columns)
        self.check(table, path)
        with atomic_file(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")

    @contextmanager
    def writer(self, path: Path, metadata: Callable[[], dict[str, str]] | None = None) -> Iterator[Append]:
        """Write a table block by block, atomically; memory holds one block.

        Yields a function that appends columns. `metadata` is called at the end and returns the file's metadata.
        """
        with atomic_file(path) as temporary, pq.ParquetWriter(temporary, self.schema, compression="zstd") as stream:

            def append(columns: dict[str, list[object]] | pa.Table) -> None:
                block = columns if isinstance(columns, pa.Table) else self._table(columns)
                self.check(block, path)
                stream.write_table(block)

            yield append
            if metadata is not None:
                stream.add_key_value_metadata(metadata())

    def read(self, path: Path, columns: Iterable[str] | None = None) -> pa.Table:
        """Read and check a table."""
        wanted = list(columns) if columns is not None else self.schema.names
        with self._reading(path, wanted):
            there = pq.read_schema(path).names
            table = self._whole(pq.read_table(path, columns=[name for name in wanted if name in there]), wanted)
        self.check(table, path)
        return table

    def blocks(self, path: Path, columns: Iterable[str] | None = None, rows: int = 10_000) -> Iterator[pa.Table]:
        """Read and check `rows` rows of a table at a time; raises as `read`, after the rows before the fault."""
        wanted = list(columns) if columns is not None else self.schema.names
        first = 0
        # Without a buffer, the whole column of a row group is read at once.
        with self._reading(path, wanted), pq.ParquetFile(path, buffer_size=1 << 20) as stream:
            for batch in stream.iter_batches(rows, columns=wanted):
                block = self._whole(pa.Table.from_batches([batch]), wanted)
                self.check(block, path, first)
                first += block.num_rows
                yield block

    def take(self, path: Path, rows: Iterable[int], columns: Iterable[str], block: int = 512) -> pa.Table:
        """Rows by their ascending numbers; memory holds these and `block` rows.

        Arrow's own `take` fails with "offset overflow" if a column, such as 20,000 photographs, has 2 GiB.
        Raises as `read`.
        """
        wanted, columns, first, parts = np.fromiter(rows, np.int64), list(columns), 0, []
        for part in self.blocks(path, columns, block):
            begin, end = np.searchsorted(wanted, (first, first + part.num_rows))
            parts.append(part.take(wanted[begin:end] - first))
            first += part.num_rows
        return pa.concat_tables(parts) if parts else self.schema.empty_table().select(columns)

    def count(self, path: Path) -> int:
        """The number of rows of a file of this table; raises `InputError` if the file is missing or damaged."""
        with self._reading(path, []):
            return int(pq.read_metadata(path).num_rows)

    def _table(self, columns: dict[str, list[object]]) -> pa.Table:
        rows = max(map(len, columns.values()), default=0)
        absent = {field.name: [None] * rows for field in self.schema if field.nullable and field.name not in columns}
        return pa.table(columns | absent, schema=self.schema)

    def _whole(self, table: pa.Table, wanted: list[str]) -> pa.Table:
        """The columns `wanted` in their order, with nulls for columns that the file omits."""
        for name in wanted:
            if name not in table.column_names:
                field = self.schema.field(name)
                table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        return table.select(wanted)

    @contextmanager
    def _reading(self, path: Path, wanted: list[str]) -> Iterator[None]:
        """Refuse a file without the columns `wanted`, and turn errors of the block into an `InputError`."""
        if not path.exists():
            raise InputError(f"{path} is missing: run `dvc repro` to make it")
        try:
            there = pq.read_schema(path).names
            present = {*there, *(field.name for field in self.schema if field.nullable)}
            missing = [name for name in wanted if name not in present]
            if missing:
                raise InputError(f"{path} lacks the column '{missing[0]}' of a '{self.name}' table: run `dvc repro`")
            yield
        except DAMAGED as error:
            reason = str(error).splitlines()[0][:120]
            raise InputError(
                f"{path} cannot be read as a '{self.name}' table ({reason}): delete it and run `dvc repro`"
            ) from error

    def check(self, table: pa.Table, path: Path, first: int = 0) -> None:
        """Raise `InputError` for the first row with null or empty text where the contract forbids it.

        `first` is the row number of the table's first row in the file.
        """
        for field in self.schema:
            if field.name not in table.column_names:
                continue
            if field.type != table.schema.field(field.name).type:
                actual = table.schema.field(field.name).type
                raise InputError(f"{path}: column '{field.name}' is {actual}, a '{self.name}' table has {field.type}")
            if field.nullable:
                continue
            column = table.column(field.name)
            bad = pa.compute.is_null(column)
            if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
                bad = pa.compute.or_kleene(bad, pa.compute.equal(pa.compute.binary_length(column), 0))
            row = pa.compute.index(pa.compute.fill_null(bad, True), True).as_py()
            if row >= 0:
                raise InputError(f"{path}: row {first + row} has no '{field.name}': fix or remove the row")
