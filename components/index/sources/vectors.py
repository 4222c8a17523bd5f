"""Vectors that were computed before: by stage `embed` of this project, of another index, or by other tools.

Vectors of other tools, such as clip-retrieval's, have no hash of their tower: `--encoder` names their encoder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.benchmarks.scoring.encoding.context import EncoderUnderTest
from components.core.compute.metrics import Features, Indices
from components.core.pictures.embedding_files import (
    COLUMNS,
    EmbeddingFile,
    caption_column,
    embedding_files,
    name_column,
    read_embeddings,
)
from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.core.tables.record_files import read_record
from components.core.tables.records import PAIRS, SPLITS
from components.encoders.embeddings import MANIFEST, ImageEmbeddings, Manifest
from components.index.facts import FACTS, read_facts
from components.index.image_index import accept_tower
from components.index.rows import Rows, column_kind, further_names
from components.index.sources.source import ImageBlock, ImageSource, Opened, dim_of, tower_of
from components.index.vectors import Vectors

_BLOCK = 8192


def _embedding_files(given: str) -> list[EmbeddingFile]:
    path = Path(given)
    if path.is_dir():
        return embedding_files(path)
    return [file for file in embedding_files(path.parent) if file.embeddings == path]


def _open_embeddings(given: str, encoder: EncoderUnderTest | None) -> Opened:
    computing, tower = tower_of(encoder, f"the files in {given} do not name the encoder that computed them")
    files, dim, total = _embedding_files(given), dim_of(computing), 0
    if not files:
        raise InputError(f"--from {given} has no embeddings (.npy, or Parquet with a column of vectors): correct it")
    for file in files:
        rows, width = file.shape()
        if rows and width != dim:
            raise InputError(
                f"{file.embeddings} has vectors of {width} numbers, those of --encoder '{computing.name}' have {dim}: "
                "give the encoder that computed them"
            )
        total += rows
    return Opened(tower, computing.name, dim, total, lambda: _embedding_blocks(files, dim))


def _embedding_blocks(files: list[EmbeddingFile], dim: int) -> Iterator[ImageBlock]:
    for file in files:
        rows, _ = file.shape()
        for first in range(0, rows, _BLOCK):
            yield _embedding_block(file, first, min(_BLOCK, rows - first), dim)


def _embedding_block(file: EmbeddingFile, first: int, count: int, dim: int) -> ImageBlock:
    given = np.ascontiguousarray(read_embeddings(file.embeddings, first, count))
    if given.shape[1] != dim:
        raise InputError(f"{file.embeddings} has rows of different width: write it again")
    norms = np.linalg.norm(given.astype(np.float32), axis=1)

    def vectors(rows: Indices) -> Features:
        # `components.index.building` leaves out vectors that are zero or not finite.
        with np.errstate(invalid="ignore"):
            unit: Features = np.asarray(given[rows], np.float32) / norms[rows, None]
        return unit

    return ImageBlock(str(file.embeddings), _embedding_rows(file, first, given), vectors)


def _embedding_rows(file: EmbeddingFile, first: int, given: Features) -> pa.Table:
    table = pa.table({})
    if file.captions.is_file():
        table = file.columns(first, len(given), lambda column: column_kind(column.type) is not None)
    columns: dict[str, object] = {"image_id": pa.array([image_id(row.tobytes()) for row in given], pa.string())}
    caption, name = caption_column(table.column_names), name_column(table.column_names)
    if caption is not None:
        columns["caption"] = table.column(caption).cast(pa.string())
    numbered = [f"{file.embeddings.name}:{row}" for row in range(first, first + len(given))]
    columns["name"] = table.column(name).cast(pa.string()) if name else numbered
    further = [column for column in table.column_names if column not in (caption, *COLUMNS)]
    return pa.table(columns | {new: table.column(old) for old, new in further_names(further).items()})


EMBEDDINGS = ImageSource(lambda given: bool(_embedding_files(given)), _open_embeddings)


def _open_index(given: str, encoder: EncoderUnderTest | None) -> Opened:
    folder = Path(given)
    facts = read_facts(folder)
    vectors, rows = Vectors.open(folder, facts), Rows.open(folder, facts)
    if encoder is not None:
        accept_tower(facts, folder, encoder)

    def blocks() -> Iterator[ImageBlock]:
        for start, block in vectors.blocks(_BLOCK):
            yield ImageBlock(given, rows.take(np.arange(start, start + len(block))), block.__getitem__)

    return Opened(facts.image_tower_sha256, facts.encoder, facts.dim, facts.rows, blocks)


INDEX = ImageSource(lambda given: (Path(given) / FACTS).is_file(), _open_index)


def _project_folders(given: str) -> tuple[Path, Path]:
    return Path(given) / "pairs", Path(given) / "embeddings"


def _open_project(given: str, encoder: EncoderUnderTest | None) -> Opened:
    pairs, embeddings = _project_folders(given)
    manifest = read_record(Manifest, embeddings / MANIFEST, "run `dvc repro embed`")
    total = sum(split.rows for split in manifest.splits.values())
    tower = manifest.image_tower_sha256
    if encoder is not None and encoder.image_tower_sha256 != tower:
        raise InputError(
            f"{embeddings} was made by image tower {tower[:12]}, --encoder '{encoder.name}' has "
            f"{(encoder.image_tower_sha256 or 'none')[:12]}: give an encoder of this project, or run `dvc repro embed`"
        )
    name = encoder.name if encoder is not None else "base"
    return Opened(tower, name, manifest.embed_dim, total, lambda: _project_blocks(pairs, embeddings))


def _project_blocks(pairs: Path, embeddings: Path) -> Iterator[ImageBlock]:
    for split in SPLITS:
        path = pairs / f"{split}.parquet"
        features = ImageEmbeddings.open(embeddings, split, path).features
        first = 0
        for table in PAIRS.blocks(path, ["image_id", "caption", "image", "file", "position", "size"], _BLOCK):
            block = features[first : first + table.num_rows]
            yield ImageBlock(str(path), _project_rows(path, split, table, first), _array(block))
            first += table.num_rows


def _array(features: Features) -> Any:
    return lambda rows: np.asarray(features[rows])


def _project_rows(path: Path, split: str, table: pa.Table, first: int) -> pa.Table:
    """Rows of an index; a picture that is stored in the table of pairs itself is located by its row there."""
    here = pc.is_valid(table["image"])
    numbers = pa.array(np.arange(first, first + table.num_rows))
    file = pc.if_else(here, pa.scalar(str(path)), table["file"])
    size = pc.if_else(here, pc.cast(pc.binary_length(table["image"]), pa.int64()), table["size"])
    position = pc.if_else(here, numbers, table["position"])
    whole_file = pc.and_(pc.invert(here), pc.and_(pc.is_null(position), pc.is_valid(size)))
    columns = (file, table["image_id"], pc.fill_null(whole_file, False))
    names = [
        Path(name).name if named else image
        for name, image, named in zip(*(column.to_pylist() for column in columns), strict=True)
    ]
    return pa.table({
        "image_id": table["image_id"], "caption": table["caption"], "name": pa.array(names, pa.string()),
        "file": file, "position": position, "size": size, "split": pa.array([split] * table.num_rows, pa.string()),
    })  # fmt: skip


PROJECT = ImageSource(lambda given: all(folder.is_dir() for folder in _project_folders(given)), _open_project)
