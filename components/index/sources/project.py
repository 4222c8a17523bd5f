"""This project's own images: what stage `embed` wrote of the pairs of all splits; nothing is embedded again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.benchmarks.encoding.context import EncoderUnderTest
from components.core.errors import InputError
from components.core.metrics import Features, Indices
from components.core.record_files import read_record
from components.core.records import PAIRS, SPLITS
from components.encoders.embeddings import MANIFEST, ImageEmbeddings, Manifest
from components.index.sources.source import Block, Opened, Source

_BLOCK = 8192
_COLUMNS = ["image_id", "caption", "image", "file", "position", "size"]


def _folders(given: str) -> tuple[Path, Path]:
    return Path(given) / "pairs", Path(given) / "embeddings"


def _fits(given: str) -> bool:
    return all(folder.is_dir() for folder in _folders(given))


def _open(given: str, encoder: EncoderUnderTest | None) -> Opened:
    pairs, embeddings = _folders(given)
    manifest = read_record(Manifest, embeddings / MANIFEST, "run `dvc repro embed`")
    total = sum(split.rows for split in manifest.splits.values())
    tower = manifest.image_tower_sha256
    if encoder is not None and encoder.image_tower_sha256 != tower:
        raise InputError(
            f"{embeddings} was made by image tower {tower[:12]}, --encoder '{encoder.name}' has "
            f"{(encoder.image_tower_sha256 or 'none')[:12]}: give an encoder of this project, or run `dvc repro embed`"
        )
    name = encoder.name if encoder is not None else "base"
    return Opened(tower, name, manifest.embed_dim, total, lambda: _blocks(pairs, embeddings))


def _blocks(pairs: Path, embeddings: Path) -> Iterator[Block]:
    for split in SPLITS:
        path = pairs / f"{split}.parquet"
        features = ImageEmbeddings.open(embeddings, split, path).features
        first = 0
        for table in PAIRS.blocks(path, _COLUMNS, _BLOCK):
            yield _block(path, split, table, features[first : first + table.num_rows], first)
            first += table.num_rows


def _block(path: Path, split: str, table: pa.Table, features: Features, first: int) -> Block:
    """Rows as they are; a picture that lies in the table of pairs itself is found there by its row."""
    here = pc.is_valid(table["image"])
    numbers = pa.array(np.arange(first, first + table.num_rows))
    file = pc.if_else(here, pa.scalar(str(path)), table["file"])
    size = pc.if_else(here, pc.cast(pc.binary_length(table["image"]), pa.int64()), table["size"])
    position = pc.if_else(here, numbers, table["position"])
    own = pc.and_(pc.invert(here), pc.and_(pc.is_null(position), pc.is_valid(size)))
    names = [
        Path(name).name if named else image
        for name, image, named in zip(
            file.to_pylist(), table["image_id"].to_pylist(), pc.fill_null(own, False).to_pylist(), strict=True
        )
    ]
    columns: dict[str, Any] = {
        "image_id": table["image_id"], "caption": table["caption"], "name": pa.array(names, pa.string()),
        "file": file, "position": position, "size": size, "split": pa.array([split] * table.num_rows, pa.string()),
    }  # fmt: skip

    def vectors(rows: Indices) -> Features:
        return np.asarray(features[rows])

    return Block(str(path), pa.table(columns), vectors)


SOURCE = Source(_fits, _open)
