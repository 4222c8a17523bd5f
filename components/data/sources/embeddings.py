"""Image embeddings with captions and no pictures at all, as clip-retrieval's inference writes them.

`prepare.folder` holds `img_emb/img_emb_<n>.npy` beside `metadata/metadata_<n>.parquet`, or any `<name>.npy` beside its
`<name>.parquet`, row by row; or Parquet files with a column of vectors, `embedding`. Column `caption` has the texts.
A row is of the split that column `split` says, or else of that which the file's name has in it as a word. Rows of zeros
or without a caption are left out and counted.

`base` must be the model that made the embeddings: its image tower is not asked, and embeddings of another width are
refused by stage `embed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.embedding_files import embedding_column, embedding_shape, read_embeddings, rows_of_file
from components.core.errors import InputError
from components.core.files import image_id
from components.core.settings import Prepare
from components.data.checked_pictures import Part
from components.data.leaks.keys import picture_key
from components.data.listing import image_folder
from components.data.source import Seen, Unusable, UnusableError
from components.data.splits import split_named, split_said
from components.data.streamed_images import TRAIN, Splits, streamed_source

CAPTIONS = ("caption", "text", "title", "alt_text")
NAMES = ("image_path", "url", "key")
"""What the columns of texts and of names are called; the first that there is counts."""
_OF_TEXTS = re.compile(r"(?:^|[^a-z])(?:te?xt|caption)s?(?:[^a-z]|$)")
"""In the names of arrays that hold vectors of texts; they often are next to those of images."""
_SPLIT = "split"
_PART = 50_000
"""Rows that are read together."""
_HOW = "put clip-retrieval's folders img_emb and metadata there, or <name>.npy beside <name>.parquet with the captions"


@dataclass(frozen=True)
class EmbeddingFile:
    """Embeddings, and the Parquet file with their captions, which may be the same."""

    embeddings: Path
    captions: Path


def read_splits(settings: Prepare) -> Splits:
    """The files by split, in parts.

    Raises:
        InputError: the folder is missing, has no embeddings, none to train on, or a file does not fit its captions.
    """
    folder = image_folder(settings)
    found: dict[str, list[Part]] = {}
    for file in embedding_files(folder):
        named = split_named(str(file.embeddings.relative_to(folder)))
        own = _SPLIT in _metadata(file.captions).schema.names
        found.setdefault(TRAIN if own else named or TRAIN, []).extend(_parts(file, named))
    if TRAIN not in found:
        raise InputError(f"{folder} has no embeddings to train on: {_HOW}")
    return found


def embedding_files(folder: Path) -> list[EmbeddingFile]:
    """A folder's embeddings in the order of their numbers; the files of captions need not be there."""
    found = [*folder.glob("*.npy"), *folder.glob("img_emb/*.npy")]
    arrays = sorted((path for path in found if not _OF_TEXTS.search(path.stem.lower())), key=_order)
    pairs = [EmbeddingFile(array, _captions_of(array)) for array in arrays]
    taken = {pair.captions for pair in pairs}
    others = [path for path in sorted(folder.glob("*.parquet")) if path not in taken and _has_vectors(path)]
    return [*pairs, *(EmbeddingFile(path, path) for path in others)]


def _order(path: Path) -> tuple[str, int, str]:
    """`img_emb_10` stands behind `img_emb_9`."""
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


def _parts(file: EmbeddingFile, named: str) -> Iterator[Part]:
    rows, _ = embedding_shape(file.embeddings)
    told = _metadata(file.captions).num_rows
    if rows != told:
        raise InputError(f"{file.embeddings} has {rows} rows, {file.captions} has {told}: write both again")
    states = [path.stat() for path in (file.embeddings, file.captions)]
    stamp = " ".join(f"{one.st_size} {one.st_ctime_ns}" for one in states)
    for first in range(0, rows, _PART):
        count = min(_PART, rows - first)
        told_of = f"{file.embeddings} {named} {stamp} {first} {count}"
        yield Part(told_of, partial(_samples, file, named, first, count), count)


def _metadata(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {_HOW}") from None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): write it again") from None


def _samples(file: EmbeddingFile, named: str, first: int, count: int) -> Iterator[Seen | Unusable]:
    vectors = read_embeddings(file.embeddings, first, count)
    usable = np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
    for offset, (caption, name, split) in enumerate(_texts(file.captions, first, count)):
        place = f"{file.captions}: row {first + offset + 1}"
        try:
            own = split_said(place, split) or named
        except UnusableError as fault:
            yield Unusable(str(fault))
            continue
        if not usable[offset]:
            yield Unusable(f"{file.embeddings}: row {first + offset + 1} is zero or not finite: compute it again")
        elif not isinstance(caption, str) or not caption.strip():
            yield Unusable(f"{place} has an empty caption: write or remove it")
        else:
            raw = vectors[offset].tobytes()
            known, key, at = image_id(raw), picture_key(raw), first + offset
            yield Seen(place, str(file.embeddings), at, None, known, key, (caption,), str(name or ""), own)


def _texts(path: Path, first: int, count: int) -> Iterator[tuple[Any, ...]]:
    """Captions, names and splits of some rows; names and splits may be missing."""
    try:
        with pq.ParquetFile(path) as stream:
            names = stream.schema_arrow.names
            caption = next((name for name in CAPTIONS if name in names), None)
            if caption is None:
                raise InputError(f"{path} has the columns {', '.join(names)} and none for the caption: call it caption")
            columns = (caption, next((name for name in NAMES if name in names), ""), _SPLIT)
            table = rows_of_file(stream, [name for name in columns if name in names], first, count)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): write it again") from None
    none = [None] * count
    return zip(*(table.column(name).to_pylist() if name in names else none for name in columns), strict=True)


def find(folder: Path) -> str | None:
    """See `Source`: a file of embeddings."""
    files = embedding_files(folder)
    return str(files[0].embeddings.relative_to(folder)) if files else None


SOURCE = streamed_source(read_splits, find, "*.npy", _HOW)
