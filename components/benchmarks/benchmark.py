"""What a benchmark declares, and what it is given to score an encoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from components.benchmarks.encoding.text_features import TextEncoder, embed_new
from components.core.errors import InputError
from components.core.metrics import Features, Indices, Reals, shared
from components.core.table import Table

Columns = TypeVar("Columns", Reals, Indices)
"""Values of queries or their pictures, which are cut into groups alike."""


@dataclass(frozen=True)
class Metric:
    """A metric: the last part of its full name with `k` for a depth, such as `ao_at_k`."""

    name: str
    higher_is_better: bool
    ties: str
    """What happens to equal similarities, in words."""


@dataclass(frozen=True)
class Correlation:
    """A metric that is the correlation of two columns, `[rows]` each, such as human and cosine similarities."""

    kind: Literal["spearman", "pearson"]
    gold: Reals
    predicted: Reals


@dataclass(frozen=True)
class Scores:
    """What a benchmark found.

    Attributes:
        values: full metric name `<benchmark>/[<group>/]<metric>` -> one value per query `[queries]`.
        strata: for metrics that are a mean of group means, each query's group number `[queries]`.
        rankings: named top lists `[queries, depth]` of gallery rows, kept for the report's gallery.
        correlations: full metric name -> its columns.
        scalars: full metric name -> a value that is no mean over queries, such as a standard error over seeds.
        pictures: full metric name -> number of the picture that each query is about `[queries]`, or of its two
            `[queries, 2]`; kept only where a picture has several queries, whose values are then not independent.
    """

    values: dict[str, Reals]
    strata: dict[str, Indices] = field(default_factory=dict)
    rankings: dict[str, Indices] = field(default_factory=dict)
    correlations: dict[str, Correlation] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)
    pictures: dict[str, Indices] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in [name for name, found in self.pictures.items() if not shared(found)]:
            del self.pictures[name]


@dataclass
class Context:
    """An encoder, the gallery of all test images, and the texts embedded so far.

    Attributes:
        encoder: embeds texts.
        image_ids: ids of the test images in gallery order.
        image_features: their unit features `[images, dim]` by this encoder.
        folder: holds the benchmark tables.
        ks: depths of the ranking metrics.
    """

    encoder: TextEncoder
    image_ids: Sequence[str]
    image_features: Features
    folder: Path
    ks: tuple[int, ...]
    _known: dict[str, Features] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if max(self.ks) > len(self.image_ids):
            raise InputError(
                f"params.yaml: evaluate.ks has {max(self.ks)}, but the test split has only "
                f"{len(self.image_ids)} images: lower it or raise prepare.counts.test"
            )
        self._rows = {image: row for row, image in enumerate(self.image_ids)}

    def read(self, table: Table, file: str) -> pa.Table:
        """Read a benchmark table from the folder.

        Raises:
            InputError: it is missing, damaged or empty.
        """
        found = table.read(self.folder / file)
        if not found.num_rows:
            raise InputError(f"{self.folder / file} has no rows: raise prepare.counts.test and run `dvc repro prepare`")
        return found

    def texts(self, texts: Sequence[str]) -> Features:
        """Unit features `[texts, dim]`; a text that was seen before is not embedded again.

        Raises:
            InputError: the encoder returns a non-finite feature.
        """
        return embed_new(self.encoder, texts, self._known)

    def rows(self, image_ids: Sequence[str], table: str) -> Indices:
        """Gallery rows of `image_ids` `[ids]`.

        Raises:
            InputError: `table` names an image that is not in the test split.
        """
        for row, image in enumerate(image_ids):
            if image not in self._rows:
                raise InputError(
                    f"{self.folder / table}: row {row} names image '{image}', not in the test split: run `dvc repro`"
                )
        return np.array([self._rows[image] for image in image_ids], dtype=np.int64)


@dataclass(frozen=True)
class Benchmark:
    """One benchmark.

    Attributes:
        name: its file's name and the first part of its metrics' names.
        version: protocol version; raised when a value could change for the same encoder and data.
        files: the tables it reads, below the evaluation folder.
        metrics: everything it may report.
        score: scores the context's encoder.
        key_metrics: full names of what a short table shows; a depth stands for the nearest one in `evaluate.ks`.
    """

    name: str
    version: int
    files: tuple[str, ...]
    metrics: tuple[Metric, ...]
    score: Callable[[Context], Scores] = field(repr=False)
    key_metrics: tuple[str, ...] = ()

    def check_files(self, folder: Path) -> list[Path]:
        """The paths of its tables.

        Raises:
            InputError: one is missing.
        """
        paths = [folder / file for file in self.files]
        for path in paths:
            if not path.is_file():
                raise InputError(
                    f"{path} is missing, benchmark '{self.name}' needs it: run `dvc repro prepare`, "
                    f"or take '{self.name}' out of evaluate.benchmarks in params.yaml"
                )
        return paths

    def metric(self, full_name: str) -> Metric:
        """The declaration behind a full metric name; a `KeyError` when there is none."""
        family = re.sub(r"_at_\d+$", "_at_k", full_name.rsplit("/", 1)[-1])
        return {metric.name: metric for metric in self.metrics}[family]
