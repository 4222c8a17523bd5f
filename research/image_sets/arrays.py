"""Layouts of image sets whose authors publish pixels or labels as arrays in binary files.

They replace torchvision.datasets, which unpickles CIFAR and requires the archives with their MD5 sums.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.system.errors import InputError
from components.data.test_sets.files import LazyPicture, TestSetFiles, picture_file, picture_pixels
from components.data.test_sets.readers.difference_sets import (
    CIFAR_PIXELS,
    binary_records,
    flowers102_split,
    lines,
    mat_arrays,
)
from research.image_sets.image_set import Find, ImageSet, ImageSetFacts, Layout, first_existing

_STL10_SIDE = 96
_CIFAR: dict[str, tuple[str, int, dict[str, Sequence[str]]]] = {
    "cifar-10-batches-bin": (
        "batches.meta.txt",
        1,
        {"test": ("test_batch.bin",), "train": tuple(f"data_batch_{number}.bin" for number in range(1, 6))},
    ),
    "cifar-100-binary": ("fine_label_names.txt", 2, {"test": ("test.bin",), "train": ("train.bin",)}),
}
"""Folder -> file of class names, bytes of a label, files of each split."""
_PICKLES = {"cifar-10-batches-py": "cifar-10-binary.tar.gz", "cifar-100-python": "cifar-100-binary.tar.gz"}
_IDX = {"test": "t10k", "train": "train"}
_IDX_FOLDERS = ("", "MNIST/raw/", "raw/")
_SVHN_ZERO, _SVHN_DIMENSIONS = 10, 4


def array_pictures(file: str, pixels: npt.NDArray[np.uint8]) -> list[LazyPicture]:
    """A picture for each row of `pixels`, `[images, height, width, 3]` or grey `[images, height, width]`."""
    return [picture_pixels(f"{file}[{number}]", row) for number, row in enumerate(pixels)]


def _find_cifar(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    found = first_existing(folder, *_CIFAR)
    pickles = [name for name in _PICKLES if (folder / name).exists()]
    if found is None and pickles:
        raise InputError(
            f"{folder / pickles[0]} is a Python pickle, which could run code: fetch {_PICKLES[pickles[0]]} instead"
        )
    return found


def _cifar(_files: TestSetFiles, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    """CIFAR's binary version (www.cs.toronto.edu/~kriz/cifar.html); its Python version is a pickle, never opened.

    `cifar-10-batches-bin` has records of a class byte and 3,072 pixel bytes, `cifar-100-binary` of a coarse class byte,
    a fine one and the pixels. Pixels are the red, then the green, then the blue plane of 32 rows each.
    """
    names_file, label_bytes, files = _CIFAR[path.name]
    pictures: list[LazyPicture] = []
    labels = []
    for name in files[split]:
        records = binary_records(path / name, label_bytes + CIFAR_PIXELS)
        labels.append(records[:, label_bytes - 1].astype(np.int64))
        if labels[-1].max() >= facts.classes:
            raise InputError(f"{path / name} holds class {labels[-1].max()} of {facts.classes}: fetch it again")
        planes = records[:, label_bytes:].reshape(-1, 3, 32, 32)
        pictures += array_pictures(name, planes.transpose(0, 2, 3, 1))
    names = lines(path / names_file)
    spaced = [name.replace("_", " ") for name in names]
    return ImageSet(pictures, np.concatenate(labels), spaced, torchvision_names=names)


def _find_flowers102(folder: Path, _facts: ImageSetFacts, _split: str) -> Path | None:
    return first_existing(folder, "flowers-102", "jpg") and (first_existing(folder, "flowers-102") or folder)


def _flowers102(_files: TestSetFiles, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    """`jpg/image_00001.jpg`, numbered by `setid.mat`; the archive has no class names.

    `trnid` has 1,020 images, `valid` 1,020 and `tstid` 6,149: train, val and test, as in torchvision.
    """
    numbers, labels = flowers102_split(path, {"test": "tstid", "train": "trnid"}[split])
    if labels.min() < 0 or labels.max() >= facts.classes:
        raise InputError(f"{path / 'imagelabels.mat'} has classes other than 1 to {facts.classes}: fetch it again")
    return ImageSet([picture_file(path / "jpg" / f"image_{number:05}.jpg") for number in numbers], labels)


def _beside(*paths: str) -> Find:
    """Finds the folder that holds one of `paths`; `{split}` stands for the split, `{idx}` for MNIST's name of it."""

    def find(folder: Path, _facts: ImageSetFacts, split: str) -> Path | None:
        found = first_existing(folder, *(path.format(split=split, idx=_IDX.get(split)) for path in paths))
        return None if found is None else found.parent

    return find


def _idx(_files: TestSetFiles, path: Path, _facts: ImageSetFacts, split: str) -> ImageSet:
    """MNIST's files: a big-endian header, then a byte for each pixel or label."""
    pixels = _idx_array(path, f"{_IDX[split]}-images-idx3-ubyte", 3)
    labels = _idx_array(path, f"{_IDX[split]}-labels-idx1-ubyte", 1)
    if len(pixels) != len(labels):
        raise InputError(f"{path}: {len(pixels)} images have {len(labels)} labels: fetch the {split} files again")
    return ImageSet(array_pictures(f"{_IDX[split]}-images", pixels), labels.astype(np.int64))


def _idx_array(folder: Path, name: str, dimensions: int) -> npt.NDArray[Any]:
    path = first_existing(folder, name, f"{name}.gz")
    if path is None:
        raise InputError(f"{folder / name} is missing: fetch it")
    opened: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            content = file.read(1 << 28)
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be unpacked ({error}): fetch it again") from None
    start = 4 + 4 * dimensions
    shape = tuple(int(size) for size in np.frombuffer(content[4:start].ljust(4 * dimensions, b"\0"), dtype=">u4"))
    # 8 stands for unsigned bytes.
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) - start != math.prod(shape):
        raise InputError(f"{path} is not an idx file of {dimensions} dimensions: fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def _stl10(_files: TestSetFiles, path: Path, facts: ImageSetFacts, split: str) -> ImageSet:
    """`test_X.bin` has 96 x 96 pixels column by column, `test_y.bin` classes from 1."""
    if not (path / f"{split}_y.bin").is_file():
        raise InputError(f"{path / split}_y.bin is missing: unpack the archive again")
    content = np.fromfile(path / f"{split}_X.bin", dtype=np.uint8)
    labels = np.fromfile(path / f"{split}_y.bin", dtype=np.uint8).astype(np.int64) - 1
    if len(content) != 3 * _STL10_SIDE * _STL10_SIDE * len(labels):
        raise InputError(f"{path / split}_X.bin and {split}_y.bin are not of the same images: unpack the archive again")
    if len(labels) and not 0 <= labels.min() <= labels.max() < facts.classes:
        raise InputError(f"{path / split}_y.bin has classes other than 1 to {facts.classes}: unpack the archive again")
    pixels = content.reshape(-1, 3, _STL10_SIDE, _STL10_SIDE).transpose(0, 3, 2, 1)
    return ImageSet(array_pictures(f"{split}_X", pixels), labels, lines(path / "class_names.txt"))


def _svhn(_files: TestSetFiles, path: Path, _facts: ImageSetFacts, _split: str) -> ImageSet:
    """SVHN's cropped digits: `X` `[32, 32, 3, images]` and `y`, where 10 stands for the digit 0."""
    pixels, labels = mat_arrays(path, "X", "y")
    labels = np.atleast_1d(labels).astype(np.int64)
    if pixels.ndim != _SVHN_DIMENSIONS or pixels.dtype != np.uint8 or pixels.shape[3] != len(labels):
        raise InputError(f"{path}: X is not a stack of {len(labels)} images: fetch it again")
    if not 1 <= labels.min() <= labels.max() <= _SVHN_ZERO:
        raise InputError(f"{path}: y has labels other than 1 to {_SVHN_ZERO}: fetch it again")
    return ImageSet(array_pictures(path.stem, pixels.transpose(3, 0, 1, 2)), labels % _SVHN_ZERO)


LAYOUTS = {
    "cifar_binary": Layout(
        "CIFAR's binary version (cifar-10-batches-bin/test_batch.bin or cifar-100-binary/test.bin)", _find_cifar, _cifar
    ),
    "flowers102": Layout("the authors' files (jpg/, imagelabels.mat and setid.mat)", _find_flowers102, _flowers102),
    "idx": Layout(
        "MNIST's files (t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz, train-... alike)",
        _beside(*(f"{place}{{idx}}-images-idx3-ubyte{ending}" for place in _IDX_FOLDERS for ending in ("", ".gz"))),
        _idx,
    ),
    "stl10": Layout(
        "the authors' binary files ({split}_X.bin, {split}_y.bin and class_names.txt)",
        _beside("{split}_X.bin", "stl10_binary/{split}_X.bin"),
        _stl10,
    ),
    "svhn": Layout(
        "the authors' file ({split}_32x32.mat)",
        lambda folder, _facts, split: first_existing(folder, f"{split}_32x32.mat"),
        _svhn,
    ),
}
