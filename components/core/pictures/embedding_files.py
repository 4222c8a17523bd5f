"""Reads a user's image embeddings and their captions: `.npy` arrays, or Parquet files with a column of vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.pictures.folder import files_in
from components.core.system.errors import InputError
from components.core.tables.arrays import mapped_array
from components.core.tables.parquet_rows import DAMAGED, batches, opened_parquet

COLUMNS = ("embedding", "image_embedding", "img_emb", "vector")
"""Names of the column of vectors in Parquet files, in order of precedence."""
_FIX = "write it again"
CAPTIONS = ("caption", "captions", "text", "sentences", "sentence", "sentids_raw", "title", "alt_text")
"""Names of the column of captions, in order of precedence."""
NAMES = ("image_path", "url", "key")
"""Names of the column of pictures' places, in order of precedence."""
_OF_TEXTS = re.compile(r"(?:^|[^a-z])(?:te?xt|caption)s?(?:[^a-z]|$)")
"""In the names of arrays with text embeddings, which are often stored next to those of images."""
HOW = "put clip-retrieval's folders img_emb and metadata there, or <name>.npy and <name>.parquet with the captions"
"""The files that a folder of embeddings must have."""


@dataclass(frozen=True)
class EmbeddingFile:
    """Embeddings, and the Parquet file with their captions, which may be the same file."""

    embeddings: Path
    captions: Path

    def shape(self) -> tuple[int, int]:
        """Number and length of the embeddings."""
        rows, dim = embedding_shape(self.embeddings)
        if self.captions.is_file() and (captions := self.metadata().num_rows) != rows:
            raise InputError(f"{self.embeddings} has {rows} rows, {self.captions} has {captions}: write both again")
        return rows, dim

    def metadata(self) -> pq.FileMetaData:
        """Metadata of the Parquet file; raises `InputError` if it is missing or damaged."""
        if not self.captions.exists():
            raise InputError(f"{self.captions} is missing: {HOW}")
        with _damage_explained(self.captions):
            return pq.read_metadata(self.captions)

    def columns(self, first: int, count: int, wanted: Callable[[pa.Field], bool]) -> pa.Table:
        """The wanted columns of `count` rows of the Parquet file from row `first` on."""
        with _damage_explained(self.captions), opened_parquet(self.captions) as stream:
            names = [column.name for column in stream.schema_arrow if wanted(column)]
            return rows_of_file(stream, names, first, count)


@contextmanager
def _damage_explained(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGED as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0][:120]}): {_FIX}") from None


def name_column(names: Collection[str]) -> str | None:
    """The column of picture names, None without one."""
    return next((name for name in NAMES if name in names), None)


def embedding_files(folder: Path) -> list[EmbeddingFile]:
    """A folder's embeddings, sorted by number; the files of captions may be missing."""
    paths = files_in(folder, "*.npy", "img_emb/*.npy")
    arrays = sorted((path for path in paths if not _OF_TEXTS.search(path.stem.lower())), key=_order)
    pairs = [EmbeddingFile(array, captions_of(array)) for array in arrays]
    captions = {pair.captions for pair in pairs}
    files_in(folder, "metadata/*.parquet")
    others = [path for path in files_in(folder, "*.parquet") if path not in captions and _has_vectors(path)]
    return [*pairs, *(EmbeddingFile(path, path) for path in others)]


def _order(path: Path) -> tuple[str, int, str]:
    """Sorts `img_emb_10` after `img_emb_9`."""
    stem, _, number = path.stem.rpartition("_")
    return (stem, int(number), "") if number.isdecimal() else (path.stem, -1, path.name)


def folder_of(embeddings: Path) -> Path:
    """The user's folder that a file of embeddings is in; names of pictures are relative to it."""
    return embeddings.parents[1] if embeddings.parent.name == "img_emb" else embeddings.parent


def captions_of(embeddings: Path) -> Path:
    """The Parquet file with the captions of a file of embeddings, which may be the same file."""
    if embeddings.parent.name == "img_emb":
        return folder_of(embeddings) / "metadata" / f"metadata{embeddings.stem.removeprefix('img_emb')}.parquet"
    return embeddings.with_suffix(".parquet")


def _has_vectors(path: Path) -> bool:
    try:
        return embedding_column(pq.read_schema(path)) is not None
    except DAMAGED:
        return False


def embedding_column(schema: pa.Schema) -> str | None:
    """The column of vectors of a Parquet file; None without one."""
    return next((name for name in COLUMNS if name in schema.names and _holds(schema.field(name).type)), None)


def _holds(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(is_kind(kind) for is_kind in lists) and bool(pa.types.is_floating(kind.value_type))


def embedding_shape(path: Path) -> tuple[int, int]:
    """Rows and width of a file's embeddings; the width of a Parquet file is that of its first row."""
    if path.suffix == ".npy":
        array = mapped_array(path, _FIX)
        if array.ndim != 2 or array.dtype.kind != "f":
            raise InputError(
                f"{path} holds {array.dtype} of shape {array.shape}, which are not rows of embeddings: {_FIX}"
            )
        return array.shape[0], array.shape[1]
    with _damage_explained(path), pq.ParquetFile(path) as file:
        return file.metadata.num_rows, read_embeddings(path, 0, min(1, file.metadata.num_rows)).shape[1]


def read_embeddings(path: Path, first: int, count: int) -> npt.NDArray[np.floating]:
    """`[count, dim]` from row `first` on."""
    if path.suffix == ".npy":
        rows: npt.NDArray[np.floating] = np.asarray(mapped_array(path, _FIX)[first : first + count])
    else:
        rows = _from_parquet(path, first, count)
    if len(rows) != count:
        raise InputError(f"{path} has fewer than {first + count} rows: {_FIX}")
    return rows


def rows_of_file(file: pq.ParquetFile, columns: list[str], first: int, count: int) -> pa.Table:
    """Up to `count` rows of a Parquet file from row `first` on; only their row groups are read, in batches."""
    parts, start = [file.schema_arrow.empty_table().select(columns)], 0
    for group in range(file.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if start < first + count and first < start + rows:
            place = start
            for batch in batches(file, group, columns):
                wanted = range(max(first, place), min(first + count, place + batch.num_rows))
                if wanted:
                    part = pa.Table.from_batches([batch]).select(columns)
                    parts.append(part.slice(wanted.start - place, len(wanted)))
                place += batch.num_rows
                if place >= first + count:
                    break
        start += rows
    return pa.concat_tables(parts)


def _from_parquet(path: Path, first: int, count: int) -> npt.NDArray[np.floating]:
    with _damage_explained(path), opened_parquet(path) as file:
        column = embedding_column(file.schema_arrow)
        if column is None:
            raise InputError(f"{path} has no column of vectors: name it {COLUMNS[0]}")
        lists = rows_of_file(file, [column], first, count).column(0).combine_chunks()
    values = lists.flatten().to_numpy(zero_copy_only=False)
    dim = len(values) // max(1, len(lists))
    lengths = set(pa.compute.list_value_length(lists).to_pylist())
    if len(lengths) > 1 or None in lengths:
        raise InputError(f"{path} has rows of different width, or empty rows: {_FIX}")
    vectors: npt.NDArray[np.floating] = values.reshape(len(lists), dim)
    return vectors
