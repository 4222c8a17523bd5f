"""STL-10's binary files: `test_X.bin` has 96 x 96 pixels column by column, `test_y.bin` classes from 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.array_pictures import array_pictures
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.benchmarks.image_sets.text_files import lines
from components.core.errors import InputError

_SIDE = 96
_RECORD = 3 * _SIDE * _SIDE


def _find(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
    found = first_existing(folder, f"{split}_X.bin", f"stl10_binary/{split}_X.bin")
    return None if found is None else found.parent


def _read(_context: PublishedContext, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    if not (path / f"{split}_y.bin").is_file():
        raise InputError(f"{path / split}_y.bin is missing: unpack the archive again")
    content = np.fromfile(path / f"{split}_X.bin", dtype=np.uint8)
    labels = np.fromfile(path / f"{split}_y.bin", dtype=np.uint8).astype(np.int64) - 1
    if len(content) != _RECORD * len(labels):
        raise InputError(f"{path / split}_X.bin and {split}_y.bin are not of the same images: unpack the archive again")
    if len(labels) and not 0 <= labels.min() <= labels.max() < facts.classes:
        raise InputError(f"{path / split}_y.bin has classes other than 1 to {facts.classes}: unpack the archive again")
    pixels = content.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 3, 2, 1)
    return ImageSet(array_pictures(f"{split}_X", pixels), labels, lines(path / "class_names.txt"))


LAYOUT = Layout("the authors' binary files ({split}_X.bin, {split}_y.bin and class_names.txt)", _find, _read)
