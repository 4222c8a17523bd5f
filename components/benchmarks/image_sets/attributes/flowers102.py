"""Oxford Flowers 102 (Nilsback and Zisserman 2008) as published: labels and splits as MATLAB files, numbered images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.benchmarks.benchmark import Need
from components.benchmarks.encoding.picture_source import Picture, picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.mat_files import mat_arrays
from components.core.errors import InputError
from components.core.metrics import Indices

TEST_IMAGES = 6149
_SOURCE = "robots.ox.ac.uk/~vgg/data/flowers/102"
NEEDS = (
    Need("imagelabels.mat", "8,189 labels", "1 kB", "not stated", _SOURCE),
    Need("setid.mat", "the splits", "15 kB", "not stated", _SOURCE),
    Need("jpg", "8,189 images", "330 MB", "of the photographers", f"{_SOURCE}, 102flowers.tgz"),
)


@dataclass(frozen=True)
class Flowers102:
    """The test images.

    Attributes:
        numbers: of the images `[images]`; number 1 is `image_00001.jpg`.
        labels: classes, counted from 0 `[images]`.
        folder: holds the images.
    """

    numbers: Indices
    labels: Indices
    folder: Path

    def picture(self, row: int) -> Picture:
        """One image; an `InputError` where its file is missing."""
        return picture_file(self.folder / f"image_{self.numbers[row]:05d}.jpg")


def read_flowers102(context: PublishedContext) -> Flowers102:
    """Read the context's folder; the test split is the published one, `tstid`.

    Raises:
        InputError: a file is damaged, an image has no label, or there are not 6,149 test images.
    """
    labels, numbers = _column(context, "imagelabels.mat", "labels"), _column(context, "setid.mat", "tstid")
    context.expect("setid.mat: tstid", len(numbers), TEST_IMAGES)
    if not len(numbers) or numbers.min() < 1 or numbers.max() > len(labels):
        raise InputError(f"{context.folder / 'setid.mat'} names images that imagelabels.mat lacks: fetch both again")
    return Flowers102(numbers, labels[numbers - 1] - 1, context.folder / "jpg")


def _column(context: PublishedContext, file: str, name: str) -> Indices:
    (column,) = mat_arrays(context.folder / file, name)
    return np.atleast_1d(column).astype(np.int64)
