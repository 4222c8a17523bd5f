"""CIFAR's binary version (www.cs.toronto.edu/~kriz/cifar.html); its Python version is a pickle, which is never opened.

`cifar-10-batches-bin` has records of a class byte and 3,072 pixel bytes, `cifar-100-binary` of a coarse class byte, a
fine one and the pixels; pixels are the red, then the green, then the blue plane of 32 rows each. Class names, one per
line, are in `batches.meta.txt` and `fine_label_names.txt`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.benchmarks.encoding.picture_source import Picture
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.array_pictures import array_pictures
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout
from components.benchmarks.image_sets.text_files import lines
from components.core.errors import InputError

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE


@dataclass(frozen=True)
class _Edition:
    folder: str
    names: str
    label_bytes: int
    files: dict[str, Sequence[str]]


_EDITIONS = (
    _Edition(
        "cifar-10-batches-bin",
        "batches.meta.txt",
        1,
        {"test": ("test_batch.bin",), "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6))},
    ),
    _Edition("cifar-100-binary", "fine_label_names.txt", 2, {"test": ("test.bin",), "train": ("train.bin",)}),
)
_PICKLES = {"cifar-10-batches-py": "cifar-10-binary.tar.gz", "cifar-100-python": "cifar-100-binary.tar.gz"}


def _find(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    found = next((folder / one.folder for one in _EDITIONS if (folder / one.folder).is_dir()), None)
    pickles = [name for name in _PICKLES if (folder / name).exists()]
    if found is None and pickles:
        raise InputError(
            f"{folder / pickles[0]} is a Python pickle, which could run code: fetch {_PICKLES[pickles[0]]} instead"
        )
    return found


def _read(_context: PublishedContext, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    edition = next(one for one in _EDITIONS if one.folder == path.name)
    pictures: list[Picture] = []
    labels = []
    for name in edition.files[split]:
        records = _records(path / name, edition.label_bytes)
        labels.append(records[:, edition.label_bytes - 1].astype(np.int64))
        if labels[-1].max() >= facts.classes:
            raise InputError(f"{path / name} holds class {labels[-1].max()} of {facts.classes}: fetch it again")
        planes = records[:, edition.label_bytes :].reshape(-1, 3, _SIDE, _SIDE)
        pictures += array_pictures(name, planes.transpose(0, 2, 3, 1))
    names = lines(path / edition.names)
    spaced = [name.replace("_", " ") for name in names]
    return ImageSet(pictures, np.concatenate(labels), spaced, torchvision_names=names)


def _records(path: Path, label_bytes: int) -> npt.NDArray[np.uint8]:
    if not path.is_file():
        raise InputError(f"{path} is missing: unpack the archive again")
    content = np.fromfile(path, dtype=np.uint8)
    length = label_bytes + _PIXELS
    if not len(content) or len(content) % length:
        raise InputError(f"{path} is no whole number of records of {length} bytes: fetch it again")
    return content.reshape(-1, length)


LAYOUT = Layout(
    "CIFAR's binary version (cifar-10-batches-bin/test_batch.bin or cifar-100-binary/test.bin)", _find, _read
)
