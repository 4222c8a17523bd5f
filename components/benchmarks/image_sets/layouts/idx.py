"""MNIST's files (`t10k-images-idx3-ubyte`, packed with gzip or not): big-endian header, then a byte for each pixel."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.image_sets.array_pictures import array_pictures
from components.benchmarks.image_sets.facts import ImageSetFacts
from components.benchmarks.image_sets.image_set import ImageSet, Layout, first_existing
from components.core.errors import InputError

_PREFIX = {"test": "t10k", "train": "train"}
_FOLDERS = ("", "MNIST/raw/", "raw/")
_UNSIGNED_BYTES = 8
_LARGEST = 1 << 28
"""Bytes that are unpacked at most."""


def _find(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
    stem = f"{_PREFIX[split]}-images-idx3-ubyte"
    found = first_existing(folder, *(f"{place}{stem}{ending}" for place in _FOLDERS for ending in ("", ".gz")))
    return None if found is None else found.parent


def _read(_context: PublishedContext, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    pixels = _array(path, f"{_PREFIX[split]}-images-idx3-ubyte", 3)
    labels = _array(path, f"{_PREFIX[split]}-labels-idx1-ubyte", 1)
    if len(pixels) != len(labels):
        raise InputError(f"{path}: {len(pixels)} images have {len(labels)} labels: fetch the {split} files again")
    return ImageSet(array_pictures(f"{_PREFIX[split]}-images", pixels), labels.astype(np.int64))


def _array(folder: Path, name: str, dimensions: int) -> npt.NDArray[Any]:
    path = first_existing(folder, name, f"{name}.gz")
    if path is None:
        raise InputError(f"{folder / name} is missing: fetch it")
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read(_LARGEST)
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be unpacked ({error}): fetch it again") from None
    start = 4 + 4 * dimensions
    shape = tuple(int(size) for size in np.frombuffer(content[4:start].ljust(4 * dimensions, b"\0"), dtype=">u4"))
    if content[:4] != bytes((0, 0, _UNSIGNED_BYTES, dimensions)) or len(content) - start != _product(shape):
        raise InputError(f"{path} is no idx file of {dimensions} dimensions: fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _product(shape: tuple[int, ...]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product


LAYOUT = Layout(
    "MNIST's files (t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz, train-... alike)", _find, _read
)
