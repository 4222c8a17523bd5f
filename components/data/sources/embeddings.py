"""Image embeddings with captions and without pictures, as clip-retrieval's inference writes them.

`prepare.folder` holds `img_emb/img_emb_<n>.npy` with `metadata/metadata_<n>.parquet`, or any `<name>.npy` with its
`<name>.parquet`, row by row; or Parquet files with a column of vectors, `embedding`. Rows of zeros or without a caption
are left out and counted. `base` must be the model that computed the embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.pictures.embedding_files import embedding_column, embedding_shape, read_embeddings, rows_of_file
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.data.leaks.keys import picture_key
from components.data.listed_images import image_folder
from components.data.source import PictureChunk, Sample, Unusable, UnusableError, split_in_path, split_of_word
from components.data.streamed_images import TRAIN, Splits, streamed_source

CAPTIONS = ("caption", "text", "title", "alt_text")
_NAMES = ("image_path", "url", "key")
_OF_TEXTS = re.compile(r"(?:^|[^a-z])(?:te?xt|caption)s?(?:[^a-z]|$)")
"""In the names of arrays with text embeddings, which are often stored next to those of images."""
_SPLIT = "split"
_CHUNK = 50_000
"""Rows that are read together."""
_HOW = "put clip-retrieval's folders img_emb and metadata there, or <name>.npy and <name>.parquet with the captions"


@dataclass(frozen=True)
class EmbeddingFile:
    """Embeddings, and the Parquet file with their captions, which may be the same file."""

    embeddings: Path
    captions: Path

    def shape(self) -> tuple[int, int]:
        """Number and length of the embeddings.

        Raises:
            InputError: a file is damaged, or the file of captions has another number of rows.
        """
        rows, dim = embedding_shape(self.embeddings)
        if self.captions.is_file() and (captions := self.metadata().num_rows) != rows:
            raise InputError(f"{self.embeddings} has {rows} rows, {self.captions} has {captions}: write both again")
        return rows, dim

    def metadata(self) -> pq.FileMetaData:
        """Metadata of the Parquet file; raises `InputError` if it is missing or damaged."""
        try:
            return pq.read_metadata(self.captions)
        except FileNotFoundError:
            raise InputError(f"{self.captions} is missing: {_HOW}") from None
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.captions} is damaged ({error}): write it again") from None

    def columns(self, first: int, count: int, wanted: Callable[[pa.Field], bool]) -> pa.Table:
        """The wanted columns of `count` rows of the Parquet file from row `first` on.

        Raises:
            InputError: the file is damaged.
        """
        try:
            with pq.ParquetFile(self.captions) as stream:
                names = [column.name for column in stream.schema_arrow if wanted(column)]
                return rows_of_file(stream, names, first, count)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.captions} is damaged ({error}): write it again") from None


def caption_column(names: Collection[str]) -> str | None:
    """The column of captions, None without one."""
    return next((name for name in CAPTIONS if name in names), None)


def name_column(names: Collection[str]) -> str | None:
    """The column of picture names, None without one."""
    return next((name for name in _NAMES if name in names), None)


def embedding_files(folder: Path) -> list[EmbeddingFile]:
    """A folder's embeddings, sorted by number; the files of captions may be missing."""
    paths = [*folder.glob("*.npy"), *folder.glob("img_emb/*.npy")]
    arrays = sorted((path for path in paths if not _OF_TEXTS.search(path.stem.lower())), key=_order)
    pairs = [EmbeddingFile(array, _captions_of(array)) for array in arrays]
    captions = {pair.captions for pair in pairs}
    others = [path for path in sorted(folder.glob("*.parquet")) if path not in captions and _has_vectors(path)]
    return [*pairs, *(EmbeddingFile(path, path) for path in others)]


def _order(path: Path) -> tuple[str, int, str]:
    """Sorts `img_emb_10` after `img_emb_9`."""
    stem, _, number = path.stem.rpartition("_")
    return (stem, int(number), "") if number.isdecimal() else (path.stem, -1, path.name)


def _captions_of(array: Path) -> Path:
    if array.parent.name == "img_emb":
        number = array.stem.removeprefix("img_emb")
        return array.parents[1] / "metadata" / f"metadata{number}.parquet"
    return array.with_suffix(".parquet")


def _has_vectors(path: Path) -> bool:
    try:
        return embedding_column(pq.read_schema(path)) is not None
    except (pa.ArrowException, OSError):
        return False


def read_splits(settings: Prepare) -> Splits:
    """The files by split, in chunks.

    Raises:
        InputError: the folder is missing, has no embeddings, none to train on, or a file does not fit its captions.
    """
    folder = image_folder(settings)
    splits: dict[str, list[PictureChunk]] = {}
    for file in embedding_files(folder):
        named = split_in_path(str(file.embeddings.relative_to(folder)))
        split = TRAIN if _SPLIT in file.metadata().schema.names else named or TRAIN
        splits.setdefault(split, []).extend(_chunks(file, named))
    if TRAIN not in splits:
        raise InputError(f"{folder} has no embeddings to train on: {_HOW}")
    return splits


def _chunks(file: EmbeddingFile, named: str) -> Iterator[PictureChunk]:
    rows, _ = file.shape()
    stats = [path.stat() for path in (file.embeddings, file.captions)]
    stamp = " ".join(f"{stat.st_size} {stat.st_ctime_ns}" for stat in stats)
    for first in range(0, rows, _CHUNK):
        count = min(_CHUNK, rows - first)
        stamp_of_chunk = f"{file.embeddings} {named} {stamp} {first} {count}"
        yield PictureChunk(stamp_of_chunk, partial(_samples, file, named, first, count), count)


def _samples(file: EmbeddingFile, named: str, first: int, count: int) -> Iterator[Sample | Unusable]:
    vectors = read_embeddings(file.embeddings, first, count)
    usable = np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
    table = file.columns(first, count, lambda column: column.name in (*CAPTIONS, *_NAMES, _SPLIT))
    caption = caption_column(table.column_names)
    if caption is None:
        names = ", ".join(file.metadata().schema.to_arrow_schema().names)
        raise InputError(f"{file.captions} has the columns {names} and none for the caption: call it caption")
    columns = [caption, name_column(table.column_names), _SPLIT]
    none = [None] * count
    texts = (table.column(name).to_pylist() if name in table.column_names else none for name in columns)
    for row, (text, name, word) in enumerate(zip(*texts, strict=True), first):
        place = f"{file.captions}: row {row + 1}"
        try:
            split = split_of_word(place, word) or named
        except UnusableError as fault:
            yield Unusable(str(fault))
            continue
        if not usable[row - first]:
            yield Unusable(f"{file.embeddings}: row {row + 1} is zero or not finite: compute it again")
        elif not isinstance(text, str) or not text.strip():
            yield Unusable(f"{place} has an empty caption: write or remove it")
        else:
            raw = vectors[row - first].tobytes()
            where = str(file.embeddings)
            yield Sample(place, where, row, None, image_id(raw), picture_key(raw), (text,), str(name or ""), split)


def find(folder: Path) -> str | None:
    """See `Source`: a file of embeddings."""
    files = embedding_files(folder)
    return str(files[0].embeddings.relative_to(folder)) if files else None


SOURCE = streamed_source(read_splits, find, "*.npy", _HOW)
