"""Small image indexes of vectors that a generator draws, and an encoder that has their tower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.compute.metrics import Features
from components.encoders.adapter.images import Preparation
from components.encoders.under_test import EncoderUnderTest
from components.serving.index.building import Added, Opened, build
from components.serving.index.sources import find_source, reading
from tests.support.toy_context import ToyEncoder, unit  # noqa: F401

DIM = 8
TOWER, OTHER_TOWER = "a" * 64, "b" * 64


def toy(name: str = "toy", tower: str | None = TOWER, dim: int = DIM) -> EncoderUnderTest:
    """An encoder whose texts have directions drawn from their letters."""
    return EncoderUnderTest(name, ToyEncoder({}, dim), name, tower, Preparation(size=8))


def drawn(rows: int, seed: int = 0, dim: int = DIM) -> Features:
    """Vectors `[rows, dim]` of any length."""
    return np.random.default_rng(seed).normal(size=(rows, dim)).astype(np.float32)


def write_vectors(folder: Path, number: int, vectors: Any, **columns: Any) -> None:
    """A file of clip-retrieval's layout with its metadata."""
    for name in ("img_emb", "metadata"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    np.save(folder / f"img_emb/img_emb_{number}.npy", vectors)
    metadata = {"caption": [f"caption {number} {row}" for row in range(len(vectors))]} | columns
    pq.write_table(pa.table(metadata), folder / f"metadata/metadata_{number}.parquet")


def opened(
    place: Path, encoder: EncoderUnderTest | None = None, source: str = "embeddings", **fields: str | None
) -> Opened:
    """A source of images; vectors are those of `toy()` if no encoder is given."""
    given = toy() if encoder is None and source == "embeddings" else encoder
    return find_source(source).open(str(place), given, reading(fields))


def make_index(folder: Path, rows: int = 40, kind: str = "exact", **columns: Any) -> Added:
    """An index `folder/index` of the vectors in `folder/vectors`, which are `drawn(rows)`."""
    write_vectors(folder / "vectors", 0, drawn(rows), **columns)
    return build(folder / "index", opened(folder / "vectors"), kind)
