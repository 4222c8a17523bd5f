"""Reads a user's image embeddings: `.npy` arrays, or Parquet files with a column of vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.system.errors import InputError
from components.core.tables.arrays import mapped_array

COLUMNS = ("embedding", "image_embedding", "img_emb", "vector")
"""Names of the column of vectors in Parquet files, in order of precedence."""
_FIX = "write it again"


def embedding_column(schema: pa.Schema) -> str | None:
    """The column of vectors of a Parquet file; None without one."""
    return next((name for name in COLUMNS if name in schema.names and _holds(schema.field(name).type)), None)


def _holds(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in lists) and bool(pa.types.is_floating(kind.value_type))


def embedding_shape(path: Path) -> tuple[int, int]:
    """Rows and width of a file's embeddings; the width of a Parquet file is that of its first row.

    Raises:
        InputError: it is damaged, or has no embeddings.
    """
    if path.suffix == ".npy":
        array = mapped_array(path, _FIX)
        if array.ndim != 2 or array.dtype.kind != "f":
            raise InputError(
                f"{path} holds {array.dtype} of shape {array.shape}, which are not rows of embeddings: {_FIX}"
            )
        return array.shape[0], array.shape[1]
    try:
        with pq.ParquetFile(path) as file:
            return file.metadata.num_rows, read_embeddings(path, 0, min(1, file.metadata.num_rows)).shape[1]
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0][:120]}): {_FIX}") from None


def read_embeddings(path: Path, first: int, count: int) -> npt.NDArray[np.floating]:
    """`[count, dim]` from row `first` on.

    Raises:
        InputError: the file is missing or damaged, has too few rows, or rows of different width.
    """
    if path.suffix == ".npy":
        rows: npt.NDArray[np.floating] = np.asarray(mapped_array(path, _FIX)[first : first + count])
    else:
        rows = _from_parquet(path, first, count)
    if len(rows) != count:
        raise InputError(f"{path} has fewer than {first + count} rows: {_FIX}")
    return rows


def rows_of_file(file: pq.ParquetFile, columns: list[str], first: int, count: int) -> pa.Table:
    """Up to `count` rows of a Parquet file from row `first` on; only their row groups are read."""
    parts, start = [file.schema_arrow.empty_table().select(columns)], 0
    for group in range(file.num_row_groups):
        end = start + file.metadata.row_group(group).num_rows
        if start < first + count and first < end:
            part = file.read_row_group(group, columns=columns).select(columns)
            parts.append(part.slice(max(0, first - start), min(end, first + count) - max(start, first)))
        start = end
    return pa.concat_tables(parts)


def _from_parquet(path: Path, first: int, count: int) -> npt.NDArray[np.floating]:
    try:
        with pq.ParquetFile(path) as file:
            column = embedding_column(file.schema_arrow)
            if column is None:
                raise InputError(f"{path} has no column of vectors: name it {COLUMNS[0]}")
            lists = rows_of_file(file, [column], first, count).column(0).combine_chunks()
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0][:120]}): {_FIX}") from None
    values = lists.flatten().to_numpy(zero_copy_only=False)
    dim = len(values) // max(1, len(lists))
    lengths = set(pa.compute.list_value_length(lists).to_pylist())
    if len(lengths) > 1 or None in lengths:
        raise InputError(f"{path} has rows of different width, or empty rows: {_FIX}")
    vectors: npt.NDArray[np.floating] = values.reshape(len(lists), dim)
    return vectors
