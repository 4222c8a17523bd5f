"""Reads the encoded pictures of a table of pairs from their files, shards and tables; used by all stages."""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from components.core.pictures.shard_files import ShardFiles, is_remote
from components.core.system.errors import InputError
from components.core.system.user_files import RefusedError, open_file
from components.core.tables.files import image_id
from components.core.tables.parquet_rows import DAMAGED, batches, opened_parquet

PICTURE = ("image_id", "image", "file", "position", "size")
"""Columns of a table of pairs with the place of a row's picture."""

IMAGE_COLUMNS = ("image", "img", "jpg", "png", "picture")
"""Names of the column of images in Parquet files, in order of precedence."""
_TABLE = re.compile(r"(.+\.parquet)(?:#([^/]+))?", re.DOTALL)
_FIX = "put it back, or run `dvc repro -f prepare`"


def image_column(schema: pa.Schema, named: str | None = None) -> str | None:
    """The column of encoded images of a Parquet file, bytes or `{bytes, path}`, `named` if given; None without one."""
    names = IMAGE_COLUMNS if named is None else (named,)
    return next((name for name in names if name in schema.names and _holds(schema.field(name).type)), None)


def table_and_column(path: Path, column: str | None) -> str:
    """`file` of the pictures in a column of a Parquet file; None for the usual column."""
    return str(path) if column is None else f"{path}#{quote(column, safe='')}"


def _holds(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return bool(kind.get_field_index("bytes") >= 0)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_picture(row: dict[str, Any]) -> bool:
    """Whether a row with the columns `PICTURE` has a picture, not only an embedding."""
    return row["image"] is not None or (row["file"] is not None and row["size"] is not None)


def place_of(row: dict[str, Any]) -> str:
    """The file of a row's picture and the place in it, for messages; the image's id if it has no file."""
    file, position = row["file"], row["position"]
    if file is None:
        return str(row["image_id"])
    return str(file) if position is None else f"{file} at {position}"


class Pictures:
    """Reads pictures. The last files stay open, so that pictures in the order of their file are read in one go."""

    def __init__(self) -> None:
        self._files = ShardFiles()
        self._open: OrderedDict[str, Any] = OrderedDict()

    def __enter__(self) -> Pictures:
        return self

    def __exit__(self, *_: object) -> None:
        for opened in self._open.values():
            opened.close()
        self._open.clear()

    def of(self, rows: pa.Table) -> list[bytes]:
        """The encoded pictures of rows with the columns `PICTURE`."""
        return [self.one(row) for row in rows.select(PICTURE).to_pylist()]

    def one(self, row: dict[str, Any]) -> bytes:
        """The encoded picture of one row; raises as `of`."""
        if row["image"] is not None:
            return bytes(row["image"])
        file, position, size = row["file"], row["position"], row["size"]
        if not is_picture(row):
            raise InputError(f"image {row['image_id']} has only an embedding: its picture is required")
        raw = self._read(file, position, size)
        if image_id(raw) != row["image_id"]:
            raise InputError(f"{place_of(row)} differs from the picture in stage prepare: {_FIX}")
        return raw

    def _read(self, file: str, position: int | None, size: int) -> bytes:
        if is_remote(file):
            return self._files.read_part(file, position or 0, size)
        try:
            if position is None:
                with open_file(Path(file), None, None) as stream:
                    return stream.read(size + 1)
            opened = self._opened(file)
            if isinstance(opened, _ParquetPictures):
                return opened.picture(position)
            opened.seek(position)
            return bytes(opened.read(size))
        except RefusedError as error:
            raise InputError(f"{file} {error.why.partition(':')[0]}: {_FIX}") from None
        except DAMAGED as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"{file} cannot be read ({reason}): {_FIX}") from None

    def _opened(self, file: str) -> Any:
        if file not in self._open:
            table = _TABLE.fullmatch(file)
            self._open[file] = _ParquetPictures(table) if table else self._files.open(file)
            if len(self._open) > 8:
                self._open.popitem(last=False)[1].close()
        return self._open[file]


class _ParquetPictures:
    """Pictures of a Parquet file by row; pictures in the order of their rows are read in one go."""

    def __init__(self, table: re.Match[str]) -> None:
        self._files = ExitStack()
        self._file = self._files.enter_context(opened_parquet(table[1]))
        self._column = str(image_column(self._file.schema_arrow, table[2] and unquote(table[2])))
        self._first, self._end = 0, 0
        self._cells, self._later = pa.array([]), iter(list[pa.RecordBatch]())

    def close(self) -> None:
        self._files.close()

    def picture(self, row: int) -> bytes:
        if not self._first <= row < self._end:
            self._open_group_of(row)
        while row >= self._first + len(self._cells):
            self._first += len(self._cells)
            if (batch := next(self._later, None)) is None:
                raise pa.ArrowInvalid("it has fewer rows than it states")
            self._cells = batch.column(0)
        cell = self._cells[row - self._first].as_py()
        raw = cell["bytes"] if isinstance(cell, dict) else cell
        return raw if isinstance(raw, bytes) else b""

    def _open_group_of(self, row: int) -> None:
        end = 0
        for group in range(self._file.num_row_groups):
            first, end = end, end + self._file.metadata.row_group(group).num_rows
            if row < end:
                self._first, self._end, self._cells = first, end, pa.array([])
                self._later = batches(self._file, group, [self._column])
                return
        raise pa.ArrowInvalid(f"it has {end} rows, not {row + 1}")
