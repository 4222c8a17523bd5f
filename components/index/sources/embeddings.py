"""Vectors that others computed: clip-retrieval's `img_emb/*.npy` beside `metadata/*.parquet`, and what source
`embeddings` of the pairs reads besides. They carry no hash of their tower: `--encoder` says which encoder made them.

Pictures are not looked for: what the metadata say of them, such as an address, stays in further columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.embedding_files import COLUMNS, embedding_shape, read_embeddings, rows_of_file
from components.core.errors import InputError
from components.core.files import image_id
from components.core.metrics import Features, Indices
from components.data.sources.embeddings import CAPTIONS, NAMES, EmbeddingFile, embedding_files
from components.index.rows import column_kind, further_names
from components.index.sources.source import Block, Opened, Source, tower_of, width_of

_BLOCK = 16_384


def _fits(given: str) -> bool:
    return bool(_files(given))


def _files(given: str) -> list[EmbeddingFile]:
    path = Path(given)
    if path.is_dir():
        return embedding_files(path)
    return [one for one in embedding_files(path.parent) if path in (one.embeddings,)]


def _open(given: str, encoder: EncoderUnderTest | None) -> Opened:
    made_by, tower = tower_of(encoder, f"the files in {given} do not say which encoder made them")
    files, dim, total = _files(given), width_of(made_by), 0
    if not files:
        raise InputError(f"--from {given} has no embeddings (.npy, or Parquet with a column of vectors): correct it")
    for file in files:
        rows, width = embedding_shape(file.embeddings)
        if rows and width != dim:
            raise InputError(
                f"{file.embeddings} has vectors of {width} numbers, those of --encoder '{made_by.name}' have {dim}: "
                "give the encoder that made them"
            )
        told = _metadata_rows(file)
        if told is not None and told != rows:
            raise InputError(f"{file.embeddings} has {rows} rows, {file.captions} has {told}: write both again")
        total += rows
    return Opened(tower, made_by.name, dim, total, lambda: _blocks(files, dim))


def _metadata_rows(file: EmbeddingFile) -> int | None:
    if not file.captions.is_file():
        return None
    try:
        return int(pq.read_metadata(file.captions).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file.captions} is damaged ({error}): write it again") from None


def _blocks(files: list[EmbeddingFile], dim: int) -> Iterator[Block]:
    for file in files:
        rows, _ = embedding_shape(file.embeddings)
        for first in range(0, rows, _BLOCK):
            yield _block(file, first, min(_BLOCK, rows - first), dim)


def _block(file: EmbeddingFile, first: int, count: int, dim: int) -> Block:
    given = np.ascontiguousarray(read_embeddings(file.embeddings, first, count))
    if given.shape[1] != dim:
        raise InputError(f"{file.embeddings} has rows of different width: write it again")
    norms = np.linalg.norm(given.astype(np.float32), axis=1)

    def vectors(rows: Indices) -> Features:
        # A vector that is not finite, or zero, is left out by who builds the index.
        with np.errstate(invalid="ignore"):
            unit: Features = np.asarray(given[rows], np.float32) / norms[rows, None]
        return unit

    return Block(str(file.embeddings), _rows(file, first, given), vectors)


def _rows(file: EmbeddingFile, first: int, given: Features) -> pa.Table:
    ids = pa.array([image_id(row.tobytes()) for row in given], pa.string())
    told = _metadata(file, first, len(given))
    caption = next((name for name in CAPTIONS if name in told.column_names), None)
    name = next((name for name in NAMES if name in told.column_names), None)
    columns: dict[str, object] = {"image_id": ids}
    if caption is not None:
        columns["caption"] = told.column(caption).cast(pa.string())
    rows = range(first, first + len(given))
    columns["name"] = told.column(name).cast(pa.string()) if name else [f"{file.embeddings.name}:{row}" for row in rows]
    kept = [one for one in told.column_names if one not in (caption, *COLUMNS)]
    columns |= {called: told.column(column) for column, called in further_names(kept).items()}
    return pa.table(columns)


def _metadata(file: EmbeddingFile, first: int, count: int) -> pa.Table:
    if not file.captions.is_file():
        return pa.table({})
    try:
        with pq.ParquetFile(file.captions) as stream:
            kept = [field.name for field in stream.schema_arrow if column_kind(field.type) is not None]
            return rows_of_file(stream, kept, first, count)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file.captions} is damaged ({error}): write it again") from None


SOURCE = Source(_fits, _open)
