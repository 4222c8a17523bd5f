"""Image embeddings with captions and without pictures, as clip-retrieval's inference writes them.

`prepare.folder` holds `img_emb/img_emb_<n>.npy` with `metadata/metadata_<n>.parquet`, or any `<name>.npy` with its
`<name>.parquet`, row by row; or Parquet files with a column of vectors, `embedding`. Rows of zeros or without a caption
are left out and counted. `base` must be the model that computed the embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from components.core.pictures.embedding_files import (
    CAPTIONS,
    HOW,
    NAMES,
    EmbeddingFile,
    caption_column,
    embedding_files,
    name_column,
    read_embeddings,
)
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.data.leaks.keys import picture_key
from components.data.listed_images import image_folder
from components.data.source import PictureChunk, Sample, Unusable, UnusableError, split_in_path, split_of_word
from components.data.streamed_images import TRAIN, Splits, streamed_source

_SPLIT = "split"
_CHUNK = 50_000
"""Rows that are read together."""


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
        raise InputError(f"{folder} has no embeddings to train on: {HOW}")
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
    table = file.columns(first, count, lambda column: column.name in (*CAPTIONS, *NAMES, _SPLIT))
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


SOURCE = streamed_source(read_splits, find, "*.npy", HOW)
