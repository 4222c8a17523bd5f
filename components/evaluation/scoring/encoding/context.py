"""The encoder under test, its text features, and for synthetic scenes the gallery of test images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError
from components.core.tables.folders import benchmark_table
from components.core.tables.records import PARAPHRASE_QUERIES
from components.core.tables.table import Table
from components.encoders.embeddings import non_finite_row

if TYPE_CHECKING:
    from torch import Tensor

    from components.encoders.adapter.images import Preparation

QUERIES_FILE = "paraphrase_queries.parquet"


class TextEncoder(Protocol):
    """The part of an encoder that benchmarks use."""

    def embed_texts(self, texts: Sequence[str], batch_size: int = ..., title: str | None = ...) -> Features:
        """Unit vectors `[texts, dim]`."""


def embed_new(encoder: TextEncoder, texts: Sequence[str], known: dict[str, Features]) -> Features:
    """Unit features `[texts, dim]`; texts missing from `known` are embedded once and added to it."""
    new = list(dict.fromkeys(text for text in texts if text not in known))
    if new:
        features = encoder.embed_texts(new, title="embed texts")
        bad = non_finite_row(features)
        if bad is not None:
            raise InputError(f"the encoder gives '{new[bad]}' a non-finite feature: train it again")
        known.update(zip(new, features, strict=True))
    return np.stack([known[text] for text in texts])


@runtime_checkable
class ImageEncoder(TextEncoder, Protocol):
    """An encoder that also embeds images."""

    def embed_pixels(self, pixels: Tensor) -> Features:
        """Unit vectors `[images, dim]` of RGB pixels, uint8 or already normalised float32 `[images, 3, size, size]`."""


@runtime_checkable
class RawEncoder(ImageEncoder, Protocol):
    """An encoder that also returns features that are not normalised, which some released code uses."""

    def raw_texts(self, texts: Sequence[str]) -> Features:
        """Features `[texts, dim]`."""

    def raw_pixels(self, pixels: Tensor) -> Features:
        """Features `[images, dim]` of the same pixels as `embed_pixels`."""


@dataclass(frozen=True)
class EncoderUnderTest:
    """An encoder with its name and hashes.

    Attributes:
        name: the user's name for it, safe as a file name.
        sha256: hash of everything that determines its results.
        image_tower_sha256: hash of everything that determines its image features; None for a text encoder.
        preparation: of its pictures; None for a text encoder.
        folder: the folder that it was loaded from, if it is an encoder of this project.
        precision: of its towers; the hashes of those that are not in float32 change with it.
    """

    name: str
    encoder: TextEncoder
    sha256: str
    image_tower_sha256: str | None = None
    preparation: Preparation | None = None
    folder: Path | None = None
    precision: str = "fp32"

    @property
    def device(self) -> str:
        """The device that embeds and compares; the CPU for encoders that have none."""
        return str(getattr(self.encoder, "device", "cpu"))


@dataclass
class Context:
    """One encoder, and the folder of a benchmark; `ks` are depths of ranking metrics."""

    under_test: EncoderUnderTest
    folder: Path
    ks: tuple[int, ...]
    _known: dict[str, Features] = field(init=False, default_factory=dict, repr=False)

    def texts(self, texts: Sequence[str]) -> Features:
        """Unit features `[texts, dim]`; equal texts are embedded once, in order of length."""
        return embed_new(self.under_test.encoder, texts, self._known)


@dataclass
class ProjectContext(Context):
    """One encoder, and the gallery of all test images with their unit features `[images, dim]`."""

    image_ids: Sequence[str]
    image_features: Features

    def __post_init__(self) -> None:
        if max(self.ks) > len(self.image_ids):
            raise InputError(
                f"params.yaml: evaluate.top_k has {max(self.ks)}, but the test split has only "
                f"{len(self.image_ids)} images: lower it or raise prepare.counts.test"
            )
        self._rows = {image: row for row, image in enumerate(self.image_ids)}

    def read(self, table: Table, file: str) -> pa.Table:
        """Read a benchmark table from the folder."""
        path = benchmark_table(self.folder, file)
        rows = table.read(path)
        if not rows.num_rows:
            raise InputError(f"{path} has no rows: raise prepare.counts.test and run `dvc repro prepare`")
        return rows

    def columns(self, table: pa.Table, *names: str) -> Iterator[Features]:
        """Unit features `[rows, dim]` of the texts in each of the columns `names`."""
        return (self.texts(table[name].to_pylist()) for name in names)

    def texts_of(self, column: Literal["query", "paraphrase"], image_ids: Sequence[str], table: str) -> Features:
        """Features of the query or paraphrase of each image `[ids, dim]`; the first if an image has several."""
        queries = self.read(PARAPHRASE_QUERIES, QUERIES_FILE)
        known: dict[str, str] = {}
        for image, text in zip(queries["image_id"].to_pylist(), queries[column].to_pylist(), strict=True):
            known.setdefault(image, text)
        for row, image in enumerate(image_ids):
            if image not in known:
                raise InputError(
                    f"{self.folder / table}: row {row} names image '{image}', which {QUERIES_FILE} lacks: "
                    "run `dvc repro`"
                )
        return self.texts([known[image] for image in image_ids])

    def rows(self, image_ids: Sequence[str], table: str) -> Indices:
        """Gallery rows of `image_ids` `[ids]`."""
        for row, image in enumerate(image_ids):
            if image not in self._rows:
                raise InputError(
                    f"{self.folder / table}: row {row} names image '{image}', not in the test split: run `dvc repro`"
                )
        return np.array([self._rows[image] for image in image_ids], dtype=np.int64)
