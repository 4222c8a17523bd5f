"""SVHN's cropped digits: `test_32x32.mat` with `X` `[32, 32, 3, images]` and `y`, where 10 stands for the digit 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.array_pictures import array_pictures
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.mat_files import mat_arrays
from components.core.errors import InputError

_ZERO = 10
_DIMENSIONS = 4


def _find(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
    return first_existing(folder, f"{split}_32x32.mat")


def _read(_context: PublishedContext, path: Path, _facts: ImageSetFacts, _split: str) -> ImageSet:
    pixels, labels = mat_arrays(path, "X", "y")
    labels = np.atleast_1d(labels).astype(np.int64)
    if pixels.ndim != _DIMENSIONS or pixels.dtype != np.uint8 or pixels.shape[3] != len(labels):
        raise InputError(f"{path}: X is no stack of {len(labels)} images: fetch it again")
    if not 1 <= labels.min() <= labels.max() <= _ZERO:
        raise InputError(f"{path}: y has labels other than 1 to {_ZERO}: fetch it again")
    return ImageSet(array_pictures(path.stem, pixels.transpose(3, 0, 1, 2)), labels % _ZERO)


LAYOUT = Layout("the authors' file ({split}_32x32.mat)", _find, _read)
