"""One encoder and the folder of a benchmark, for synthetic scenes with the gallery of test images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError
from components.core.tables.folders import benchmark_table
from components.core.tables.records import PARAPHRASE_QUERIES
from components.core.tables.table import Table
from components.encoders.under_test import EncoderUnderTest, embed_new

QUERIES_FILE = "paraphrase_queries.parquet"
_Known = TypeVar("_Known")


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

    def read_shown(self, table: Table, file: str) -> tuple[pa.Table, Indices]:
        """A benchmark table about images, and the gallery row of each row's image `[rows]`."""
        rows = self.read(table, file)
        return rows, self.rows(rows["image_id"].to_pylist(), file)

    def columns(self, table: pa.Table, *names: str) -> Iterator[Features]:
        """Unit features `[rows, dim]` of the texts in each of the columns `names`."""
        return (self.texts(table[name].to_pylist()) for name in names)

    def texts_of(self, column: Literal["query", "paraphrase"], image_ids: Sequence[str], table: str) -> Features:
        """Features of the query or paraphrase of each image `[ids, dim]`; the first if an image has several."""
        queries = self.read(PARAPHRASE_QUERIES, QUERIES_FILE)
        known: dict[str, str] = {}
        for image, text in zip(queries["image_id"].to_pylist(), queries[column].to_pylist(), strict=True):
            known.setdefault(image, text)
        return self.texts(self._known_images(known, image_ids, table, f"which {QUERIES_FILE} lacks"))

    def rows(self, image_ids: Sequence[str], table: str) -> Indices:
        """Gallery rows of `image_ids` `[ids]`."""
        return np.array(self._known_images(self._rows, image_ids, table, "not in the test split"), dtype=np.int64)

    def _known_images(
        self, known: Mapping[str, _Known], image_ids: Sequence[str], table: str, lack: str
    ) -> list[_Known]:
        for row, image in enumerate(image_ids):
            if image not in known:
                raise InputError(f"{self.folder / table}: row {row} names image '{image}', {lack}: run `dvc repro`")
        return [known[image] for image in image_ids]
