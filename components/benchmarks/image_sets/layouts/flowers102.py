"""Oxford Flowers-102: `jpg/image_00001.jpg`, classes from 1 in `imagelabels.mat`, image numbers in `setid.mat`.

`trnid` has 1,020 images, `valid` 1,020 and `tstid` 6,149; torchvision calls them train, val and test, and so does
this. The archive has no class names.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.mat_files import mat_arrays
from components.core.errors import InputError

_SETS = {"test": "tstid", "train": "trnid"}


def _find(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    return first_existing(folder, "flowers-102", "jpg") and (first_existing(folder, "flowers-102") or folder)


def _read(_context: PublishedContext, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    (numbers,) = mat_arrays(path / "setid.mat", _SETS[split])
    (labels,) = mat_arrays(path / "imagelabels.mat", "labels")
    numbers, labels = np.atleast_1d(numbers).astype(np.int64), np.atleast_1d(labels).astype(np.int64)
    if numbers.min() < 1 or numbers.max() > len(labels):
        raise InputError(f"{path / 'setid.mat'} names images that imagelabels.mat lacks: fetch both again")
    chosen = labels[numbers - 1] - 1
    if chosen.min() < 0 or chosen.max() >= facts.classes:
        raise InputError(f"{path / 'imagelabels.mat'} has classes other than 1 to {facts.classes}: fetch it again")
    pictures = [picture_file(path / "jpg" / f"image_{number:05}.jpg") for number in numbers]
    return ImageSet(pictures, chosen)


LAYOUT = Layout("the authors' files (jpg/, imagelabels.mat and setid.mat)", _find, _read)
