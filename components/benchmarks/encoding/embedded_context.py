"""What benchmarks of the embedded world are given besides: all test images as a gallery, and their tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from components.benchmarks.encoding.context import Context
from components.core.errors import InputError
from components.core.metrics import Features, Indices
from components.core.table import Table


@dataclass
class EmbeddedContext(Context):
    """One encoder before the gallery of all test images.

    Attributes:
        image_ids: ids of the test images in gallery order.
        image_features: their unit features `[images, dim]` by this encoder.
    """

    image_ids: Sequence[str]
    image_features: Features

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
