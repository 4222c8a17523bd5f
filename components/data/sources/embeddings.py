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
    HOW,
    EmbeddingFile,
    embedding_files,
    name_column,
    read_embeddings,
)
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.data.leaks.keys import picture_key
from components.data.listed_images import image_folder
from components.data.row_fields import SPLIT, RowFields
from components.data.source import PictureChunk, Sample, Unusable, UnusableError, split_in_path
from components.data.streamed_images import TRAIN, Splits, streamed_source

_CHUNK = 50_000
"""Rows that are read together."""


def read_splits(settings: Prepare) -> Splits:
    """The files by split, in chunks."""
    folder, fields = image_folder(settings), RowFields.of(settings)
    splits: dict[str, list[PictureChunk]] = {}
    for file in embedding_files(folder):
        named = split_in_path(str(file.embeddings.relative_to(folder)))
        names = file.metadata().schema.to_arrow_schema().names
        columns = fields.columns(file.captions, names, [*filter(None, [fields.image or name_column(names)])])
        split = TRAIN if SPLIT in columns else named or TRAIN
        splits.setdefault(split, []).extend(_chunks(file, named, fields, columns))
    if TRAIN not in splits:
        raise InputError(f"{folder} has no embeddings to train on: {HOW}")
    return splits


def _chunks(file: EmbeddingFile, named: str, fields: RowFields, columns: list[str]) -> Iterator[PictureChunk]:
    rows, _ = file.shape()
    stats = [path.stat() for path in (file.embeddings, file.captions)]
    stamp = " ".join(f"{stat.st_size} {stat.st_ctime_ns}" for stat in stats)
    for first in range(0, rows, _CHUNK):
        count = min(_CHUNK, rows - first)
        stamp_of_chunk = f"{file.embeddings} {named} {fields.stamp} {stamp} {first} {count}"
        yield PictureChunk(stamp_of_chunk, partial(_samples, file, named, fields, columns, first, count), count)


def _samples(
    file: EmbeddingFile, named: str, fields: RowFields, columns: list[str], first: int, count: int
) -> Iterator[Sample | Unusable]:
    vectors = read_embeddings(file.embeddings, first, count)
    usable = np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
    name = fields.image or name_column(columns)
    for row, fields_of in enumerate(file.columns(first, count, lambda one: one.name in columns).to_pylist(), first):
        place, vector = f"{file.captions}: row {row + 1}", vectors[row - first]
        try:
            if not usable[row - first]:
                raise UnusableError(f"{file.embeddings}: row {row + 1} is zero or not finite: compute it again")
            texts = fields.read(place, fields_of, named)
        except UnusableError as fault:
            yield Unusable.by(fault)
            continue
        raw, where, shown = vector.tobytes(), str(file.embeddings), str(fields_of.get(name or "") or "")
        key = image_id(raw), picture_key(raw)
        yield Sample(place, where, row, None, *key, texts.captions, shown, texts.split, texts.item)


def find(folder: Path) -> str | None:
    """See `Source`: a file of embeddings."""
    files = embedding_files(folder)
    return str(files[0].embeddings.relative_to(folder)) if files else None


SOURCE = streamed_source(read_splits, find, "*.npy", HOW)
