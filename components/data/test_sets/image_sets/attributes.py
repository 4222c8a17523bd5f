"""Image sets as difference-based classification reads them, and texts about two classes of AwA2.

The texts follow the rules of PC-CLIP's paper or those of its released code (github.com/dsam99/pc_clip,
data/dataset.py), which differ in the attributes that are not visual and in the matrix row of a class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.core.compute.metrics import Indices
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import TestSetFiles
from components.data.test_sets.image_sets.arrays import CIFAR_PIXELS, binary_records, flowers102_split
from components.data.test_sets.pictures import LazyPicture, picture_pixels

Text = Callable[[int, int], str]
"""Text about the classes of two labels."""

CLASSES, PREDICATES, TEST_CLASSES, TEST_IMAGES = 50, 85, 10, 7913
CIFAR_IMAGES, CUB_IMAGES, FLOWERS_IMAGES = 10_000, 5794, 6149
NOT_VISUAL = (
    "smelly", "tunnels", "fast", "slow", "agility", "fish", "meat", "plankton", "insects", "forager", "grazer",
    "hunter", "scavenger", "skimmer", "stalker", "solitary",
)  # fmt: skip
"""Attributes that are not visible; appendix A.4 names some, the comments of the released code all."""
RELEASED_LEFT_OUT = (34, 38, 40, 41, 51, 52, 53, 54, 56, 57, 58, 59, 60, 61, 62, 83)
"""The released code's places in `predicates.txt`, read as if counted from 0: each excludes the next attribute."""
RELEASED_BIG = 15
"""The released code's place of "big"; counted from 0 it is "small"."""


@dataclass(frozen=True)
class Awa2:
    """Animals with Attributes 2 (Xian et al. 2018): classes, attributes and test images.

    Attributes:
        test_classes: the names of the test classes in alphabetical order; the test images' labels count these.
        matrix: which class has which attribute, `[classes, predicates]`.
        labels: of each test image `[files]`.
    """

    classes: tuple[str, ...]
    test_classes: tuple[str, ...]
    predicates: tuple[str, ...]
    matrix: Indices
    files: tuple[Path, ...]
    labels: Indices

    @property
    def test_rows(self) -> Indices:
        """The matrix's row of each test class, found by name `[test classes]`."""
        return np.array([self.classes.index(name) for name in self.test_classes], dtype=np.int64)

    def paper_text(self) -> Text:
        """Sentences of appendix A.4: rows and attributes by name."""
        kept = np.array([name not in NOT_VISUAL for name in self.predicates])
        return self._text(self.matrix[self.test_rows], kept, ".")

    def released_text(self) -> Text:
        """Sentences of the released code: rows by alphabetical label, attributes one place off, no full stop."""
        kept = ~np.isin(np.arange(PREDICATES), RELEASED_LEFT_OUT)
        return self._text(self.matrix, kept, "")

    def big_by_name(self) -> Indices:
        """Whether each test class is big `[test classes]`; a `ValueError` where no attribute is called "big"."""
        return np.asarray(self.matrix[self.test_rows, self.predicates.index("big")])

    def big_as_released(self) -> Indices:
        """The released code's value of it: another attribute of other classes `[test classes]`."""
        return np.asarray(self.matrix[: len(self.test_classes), RELEASED_BIG])

    def _text(self, rows: Indices, kept: npt.NDArray[np.bool_], ending: str) -> Text:
        def names(label: int, other: int) -> str:
            chosen = (rows[label] == 1) & (rows[other] == 0) & kept
            return ", ".join(np.array(self.predicates)[chosen])

        def text(first: int, second: int) -> str:
            only_first, only_second = names(first, second), names(second, first)
            return (
                f"The first image has attributes of {only_first}, while the second image has attributes of "
                f"{only_second}{ending}"
            )

        return text


def read_awa2(files: TestSetFiles) -> Awa2:
    """Classes, attributes, and images in a folder per class."""
    folder = files.folder
    classes, predicates = _numbered(folder / "classes.txt"), _numbered(folder / "predicates.txt")
    test_classes = tuple(sorted((folder / "testclasses.txt").read_text("utf-8").split()))
    files.expect("classes.txt", len(classes), CLASSES)
    files.expect("testclasses.txt", len(test_classes), TEST_CLASSES)
    if len(predicates) != PREDICATES:
        raise InputError(f"{folder / 'predicates.txt'} has {len(predicates)} names, not {PREDICATES}: fetch it again")
    for name in test_classes:
        if name not in classes:
            raise InputError(f"{folder / 'testclasses.txt'}: '{name}' is not in classes.txt: fetch both again")
    matrix = _matrix(folder / "predicate-matrix-binary.txt", len(classes))
    images = [_images(folder / "JPEGImages" / name) for name in test_classes]
    labels = np.repeat(np.arange(len(images), dtype=np.int64), [len(paths) for paths in images])
    files.expect("JPEGImages: images of test classes", len(labels), TEST_IMAGES)
    return Awa2(classes, test_classes, predicates, matrix, tuple(path for paths in images for path in paths), labels)


def _rows(path: Path, what: str) -> list[list[str]]:
    """The two columns of each line; `what` is the expected form of line {number}."""
    rows = [line.split() for line in path.read_text("utf-8").splitlines() if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            raise InputError(f"{path}: line {number} is not '{what.format(number=number)}': fetch it again")
    return rows


def _numbered(path: Path) -> tuple[str, ...]:
    """Names of lines such as "  1<tab>antelope", which must be numbered from 1."""
    rows = _rows(path, "{number}<tab>name")
    for number, row in enumerate(rows, 1):
        if row[0] != str(number):
            raise InputError(f"{path}: line {number} is not '{number}<tab>name': fetch it again")
    return tuple(row[1] for row in rows)


def _matrix(path: Path, classes: int) -> Indices:
    try:
        matrix = np.loadtxt(path, dtype=np.int64, ndmin=2)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}): fetch it again") from None
    if matrix.shape != (classes, PREDICATES) or not np.isin(matrix, (0, 1)).all():
        raise InputError(f"{path} holds no {classes} x {PREDICATES} zeros and ones: fetch it and classes.txt again")
    return np.asarray(matrix, dtype=np.int64)


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise InputError(f"{folder} is missing: unpack the images of all test classes")
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))


def read_cifar100(files: TestSetFiles) -> tuple[npt.NDArray[np.str_], Indices, Callable[[int], LazyPicture]]:
    """Coarse names and fine labels of CIFAR-100's test images, `[images]` both, and a function from a row to its image.

    Only the binary version is published without pickles. Its records are those of layout `cifar_binary`.
    """
    records = binary_records(files.folder / "test.bin", 2 + CIFAR_PIXELS)
    files.expect("test.bin", len(records), CIFAR_IMAGES)
    coarse, fine = records[:, 0].astype(np.int64), records[:, 1].astype(np.int64)
    names = _names(files.folder / "coarse_label_names.txt", coarse)
    _names(files.folder / "fine_label_names.txt", fine)
    pixels = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.array(names)[coarse], fine, lambda row: picture_pixels(f"test.bin[{row}]", pixels[row])


def _names(path: Path, labels: Indices) -> tuple[str, ...]:
    names = tuple(path.read_text("utf-8").split())
    if labels.max() >= len(names):
        raise InputError(f"{path} has {len(names)} names, but test.bin has label {labels.max()}: fetch both again")
    return names


def read_cub_test_images(files: TestSetFiles) -> tuple[str, ...]:
    """File names of CUB-200-2011's test images (Wah et al. 2011) below `images/`, in the order of `images.txt`."""
    folder = files.folder
    names, train = (dict(_rows(folder / file, "number value")) for file in ("images.txt", "train_test_split.txt"))
    if names.keys() != train.keys():
        raise InputError(f"{folder}: images.txt and train_test_split.txt list other images: fetch both again")
    tested = tuple(name for number, name in names.items() if train[number] == "0")
    files.expect("train_test_split.txt: test images", len(tested), CUB_IMAGES)
    return tested


def read_flowers102(files: TestSetFiles) -> tuple[list[Path], Indices]:
    """Files and classes, counted from 0, of the test images of Oxford Flowers 102 (Nilsback and Zisserman 2008)."""
    numbers, labels = flowers102_split(files.folder, "tstid")
    files.expect("setid.mat: tstid", len(numbers), FLOWERS_IMAGES)
    return [files.folder / "jpg" / f"image_{number:05d}.jpg" for number in numbers], labels


_AWA2 = "cvml.ista.ac.at/AwA2"
_CIFAR = "cs.toronto.edu/~kriz/cifar.html, cifar-100-binary.tar.gz"
_CUB = ("research only, images of their photographers", "vision.caltech.edu/datasets/cub_200_2011, CUB_200_2011.tgz")
_FLOWERS = "robots.ox.ac.uk/~vgg/data/flowers/102"
AWA2_FILES = (
    *(
        RequiredFile(path, what, size, "not stated", f"{_AWA2}, AwA2-base.zip")
        for path, what, size in (
            ("classes.txt", f"{CLASSES} names", "1 kB"),
            ("testclasses.txt", f"{TEST_CLASSES} names", "1 kB"),
            ("predicates.txt", f"{PREDICATES} names", "2 kB"),
            ("predicate-matrix-binary.txt", f"{CLASSES} x {PREDICATES} zeros and ones", "9 kB"),
        )
    ),
    RequiredFile("JPEGImages", "a folder per class", "13 GB, the test classes 3 GB",
                 "free licences of Flickr and Wikipedia", f"{_AWA2}, AwA2-data.zip"),
)  # fmt: skip
CIFAR_FILES = (
    RequiredFile("test.bin", f"{CIFAR_IMAGES:,} records", "31 MB", "not stated", _CIFAR),
    RequiredFile("coarse_label_names.txt", "20 names", "1 kB", "not stated", _CIFAR),
    RequiredFile("fine_label_names.txt", "100 names", "1 kB", "not stated", _CIFAR),
)
CUB_FILES = (
    RequiredFile("images.txt", "11,788 names", "1 MB", *_CUB),
    RequiredFile("train_test_split.txt", "11,788 rows", "1 MB", *_CUB),
    RequiredFile("images", "a folder per class", "1.2 GB", *_CUB),
)
FLOWERS_FILES = (
    RequiredFile("imagelabels.mat", "8,189 labels", "1 kB", "not stated", _FLOWERS),
    RequiredFile("setid.mat", "the splits", "15 kB", "not stated", _FLOWERS),
    RequiredFile("jpg", "8,189 images", "330 MB", "of the photographers", f"{_FLOWERS}, 102flowers.tgz"),
)
