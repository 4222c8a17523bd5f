"""Image embeddings with captions and no pictures at all, as clip-retrieval's inference writes them.

`prepare.folder` holds `img_emb/img_emb_<n>.npy` beside `metadata/metadata_<n>.parquet`, or any `<name>.npy` beside its
`<name>.parquet`, row by row; or Parquet files with a column of vectors, `embedding`. Column `caption` has the texts.
A file whose name has `train`, `val` or `test` in it as a word is of that split; all others train.

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
from components.data.listing import image_folder, split_named
from components.data.source import Described, Seen, Unusable
from components.data.streamed_images import TRAIN, Splits, streamed_source

CAPTIONS = ("caption", "text", "title", "alt_text")
NAMES = ("image_path", "url", "key")
"""What the columns of texts and of names are called; the first that there is counts."""
_OF_TEXTS = re.compile(r"(?:^|[^a-z])(?:te?xt|caption)s?(?:[^a-z]|$)")
"""In the names of arrays that hold vectors of texts; they often are next to those of images."""
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
        found.setdefault(split_named(str(file.embeddings.relative_to(folder))), []).extend(_parts(file))
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


def _parts(file: EmbeddingFile) -> Iterator[Part]:
    rows, _ = embedding_shape(file.embeddings)
    told = _metadata(file.captions).num_rows
    if rows != told:
        raise InputError(f"{file.embeddings} has {rows} rows, {file.captions} has {told}: write both again")
    states = [path.stat() for path in (file.embeddings, file.captions)]
    stamp = " ".join(f"{one.st_size} {one.st_ctime_ns}" for one in states)
    for first in range(0, rows, _PART):
        count = min(_PART, rows - first)
        yield Part(f"{file.embeddings} {stamp} {first} {count}", partial(_samples, file, first, count), count)


def _metadata(path: Path) -> pq.FileMetaData:
    try:
        return pq.read_metadata(path)
    except FileNotFoundError:
        raise InputError(f"{path} is missing: {_HOW}") from None
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): write it again") from None


def _samples(file: EmbeddingFile, first: int, count: int) -> Iterator[Seen | Unusable]:
    vectors = read_embeddings(file.embeddings, first, count)
    finite = np.isfinite(vectors).all(axis=1)
    captions, names = _texts(file.captions, first, count)
    for offset in range(count):
        place = f"{file.captions}: row {first + offset + 1}"
        caption, name = captions[offset], names[offset]
        if not finite[offset]:
            yield Unusable(f"{file.embeddings}: row {first + offset + 1} is not finite: compute it again")
        elif not isinstance(caption, str) or not caption.strip():
            yield Unusable(f"{place} has an empty caption: write or remove it")
        else:
            raw = vectors[offset].tobytes()
            known, key = image_id(raw), picture_key(raw)
            yield Seen(place, str(file.embeddings), first + offset, None, known, key, (caption,), str(name or ""))


def _texts(path: Path, first: int, count: int) -> tuple[list[Any], list[Any]]:
    """Captions and names of some rows; names may be missing."""
    try:
        with pq.ParquetFile(path) as stream:
            names = stream.schema_arrow.names
            caption = next((name for name in CAPTIONS if name in names), None)
            if caption is None:
                raise InputError(f"{path} has the columns {', '.join(names)} and none for the caption: call it caption")
            name = next((name for name in NAMES if name in names), None)
            columns = [caption] if name is None else [caption, name]
            table = rows_of_file(stream, columns, first, count)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is damaged ({error}): write it again") from None
    captions = table.column(caption).to_pylist()
    return captions, [None] * count if name is None else table.column(name).to_pylist()


def describe(settings: Prepare) -> Described:
    """How many embeddings there are, by split; a caption for each, and no pictures.

    Raises:
        InputError: as `read_splits`.
    """
    counts = {split: sum(part.pictures for part in parts) for split, parts in read_splits(settings).items()}
    return Described(counts, counts, 1, [])


def find(folder: Path) -> str | None:
    """See `Source`: a file of embeddings."""
    files = embedding_files(folder)
    return str(files[0].embeddings.relative_to(folder)) if files else None


SOURCE = streamed_source(read_splits, describe, find, "*.npy", _HOW)
