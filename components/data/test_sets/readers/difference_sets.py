"""Image sets as difference-based classification reads them, and texts about two classes of AwA2.

The texts follow the rules of PC-CLIP's paper or those of its released code (github.com/dsam99/pc_clip,
data/dataset.py), which differ in the attributes that are not visual and in the matrix row of a class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.compute.metrics import Indices
from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import LazyPicture, Tested, TestSet, TestSetFiles, picture_pixels

Text = Callable[[int, int], str]
"""Text about the classes of two labels."""

CIFAR_PIXELS = 3 * 32 * 32
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
    test_classes = tuple(sorted(lines(folder / "testclasses.txt")))
    files.expect("classes.txt", len(classes), CLASSES)
    files.expect("testclasses.txt", len(test_classes), TEST_CLASSES)
    if len(predicates) != PREDICATES:
        raise InputError(f"{folder / 'predicates.txt'} has {len(predicates)} names, not {PREDICATES}: fetch it again")
    images: list[Path] = []
    for name in test_classes:
        if name not in classes:
            raise InputError(f"{folder / 'testclasses.txt'}: '{name}' is not in classes.txt: fetch both again")
        if not (shown := folder / "JPEGImages" / name).is_dir():
            raise InputError(f"{shown} is missing: unpack the images of all test classes")
        images += sorted(path for path in shown.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    labels = np.array([test_classes.index(path.parent.name) for path in images], dtype=np.int64)
    files.expect("JPEGImages: images of test classes", len(labels), TEST_IMAGES)
    matrix = _matrix(folder / "predicate-matrix-binary.txt", len(classes))
    return Awa2(classes, test_classes, predicates, matrix, tuple(images), labels)


def _numbered(path: Path) -> tuple[str, ...]:
    """Names of lines such as "  1<tab>antelope", which must be numbered from 1."""
    rows = table(path, 2)
    for number, row in enumerate(rows, 1):
        if row[0] != str(number):
            raise InputError(f"{path}: line {number} is not '{number}<tab>name': fetch it again")
    return tuple(name for _, name in rows)


def _matrix(path: Path, classes: int) -> Indices:
    try:
        matrix = np.loadtxt(path, dtype=np.int64, ndmin=2)
    except ValueError as error:
        raise InputError(f"{path} is damaged ({error}): fetch it again") from None
    if matrix.shape != (classes, PREDICATES) or not np.isin(matrix, (0, 1)).all():
        raise InputError(f"{path} holds no {classes} x {PREDICATES} zeros and ones: fetch it and classes.txt again")
    return np.asarray(matrix, dtype=np.int64)


def read_cifar100(files: TestSetFiles) -> tuple[npt.NDArray[np.str_], Indices, Callable[[int], LazyPicture]]:
    """Coarse names and fine labels of CIFAR-100's test images, `[images]` both, and a function from a row to its image.

    Only the binary version is published without pickles. Its records are those of layout `cifar_binary`.
    """
    records = binary_records(files.folder / "test.bin", 2 + CIFAR_PIXELS)
    files.expect("test.bin", len(records), CIFAR_IMAGES)
    coarse, fine = records[:, 0].astype(np.int64), records[:, 1].astype(np.int64)
    names, _ = (
        _names(files.folder / f"{kind}_label_names.txt", found) for kind, found in (("coarse", coarse), ("fine", fine))
    )
    pixels = records[:, 2:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.array(names)[coarse], fine, lambda row: picture_pixels(f"test.bin[{row}]", pixels[row])


def _names(path: Path, labels: Indices) -> list[str]:
    names = lines(path)
    if labels.max() >= len(names):
        raise InputError(f"{path} has {len(names)} names, but test.bin has label {labels.max()}: fetch both again")
    return names


def read_cub_test_images(files: TestSetFiles) -> tuple[str, ...]:
    """File names of CUB-200-2011's test images (Wah et al. 2011) below `images/`, in the order of `images.txt`."""
    folder = files.folder
    names, train = (dict(table(folder / file, 2)) for file in ("images.txt", "train_test_split.txt"))
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


def flowers102_split(folder: Path, name: str) -> tuple[Indices, Indices]:
    """Numbers of the images of a split of Oxford Flowers-102, and their classes counted from 0, `[images]` both."""
    (numbers,) = mat_arrays(folder / "setid.mat", name)
    (labels,) = mat_arrays(folder / "imagelabels.mat", "labels")
    numbers, labels = np.atleast_1d(numbers).astype(np.int64), np.atleast_1d(labels).astype(np.int64)
    if not len(numbers) or numbers.min() < 1 or numbers.max() > len(labels):
        raise InputError(f"{folder / 'setid.mat'} names images that imagelabels.mat lacks: fetch both again")
    return numbers, labels[numbers - 1] - 1


def binary_records(path: Path, length: int) -> npt.NDArray[np.uint8]:
    """The records of a file `[records, length]`."""
    if not path.is_file():
        raise InputError(f"{path} is missing: unpack the archive again")
    content = np.fromfile(path, dtype=np.uint8)
    if not len(content) or len(content) % length:
        raise InputError(f"{path} is not a whole number of records of {length} bytes: fetch it again")
    return content.reshape(-1, length)


def lines(path: Path) -> list[str]:
    """The lines of a file without surrounding space, empty lines and comments (#)."""
    try:
        found = [line.strip() for line in path.read_text("utf-8").splitlines()]
    except FileNotFoundError:
        raise InputError(f"{path} is missing: put it there as its authors publish it") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): fetch it again") from None
    return [line for line in found if line and not line.startswith("#")]


def table(path: Path, columns: int) -> list[list[str]]:
    """The rows of a file of `columns` columns, the last of which may hold spaces."""
    rows = [line.split(None, columns - 1) for line in lines(path)]
    for number, row in enumerate(rows):
        if len(row) != columns:
            raise InputError(f"{path}: row {number} has {len(row)} columns instead of {columns}: fetch the file again")
    return rows


def mat_arrays(path: Path, *names: str) -> list[Any]:
    """The arrays called `names` of a MATLAB file; records become objects whose attributes are their fields."""
    from scipy.io import loadmat

    if not path.is_file():
        raise InputError(f"{path} is missing: put it there as its authors publish it")
    try:
        found = loadmat(path, variable_names=names, squeeze_me=True, struct_as_record=False)
    except Exception as error:
        # scipy's reader raises many kinds of errors for damaged bytes.
        raise InputError(f"{path} is not a MATLAB file ({str(error)[:80]}): fetch it again") from None
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{path} lacks the array '{missing[0]}': fetch it again")
    return [found[name] for name in names]


_CIFAR = ("not stated", "cs.toronto.edu/~kriz/cifar.html, cifar-100-binary.tar.gz")
_CUB = ("research only, images of their photographers", "vision.caltech.edu/datasets/cub_200_2011, CUB_200_2011.tgz")
_FLOWERS, _AWA2 = "robots.ox.ac.uk/~vgg/data/flowers/102", "cvml.ista.ac.at/AwA2"
_BASE = ("not stated", f"{_AWA2}, AwA2-base.zip")
AWA2_FILES = (
    RequiredFile("classes.txt", f"{CLASSES} names", "1 kB", *_BASE),
    RequiredFile("testclasses.txt", f"{TEST_CLASSES} names", "1 kB", *_BASE),
    RequiredFile("predicates.txt", f"{PREDICATES} names", "2 kB", *_BASE),
    RequiredFile("predicate-matrix-binary.txt", f"{CLASSES} x {PREDICATES} zeros and ones", "9 kB", *_BASE),
    RequiredFile("JPEGImages", "a folder per class", "13 GB, the test classes 3 GB",
                 "free licences of Flickr and Wikipedia", f"{_AWA2}, AwA2-data.zip"),
)  # fmt: skip
CIFAR_FILES = (
    RequiredFile("test.bin", f"{CIFAR_IMAGES:,} records", "31 MB", *_CIFAR),
    RequiredFile("coarse_label_names.txt", "20 names", "1 kB", *_CIFAR),
    RequiredFile("fine_label_names.txt", "100 names", "1 kB", *_CIFAR),
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
AWA2, AWA2_FOLDER = "difference_awa2", "awa2"
TEST_SETS = (TestSet(AWA2, AWA2_FOLDER, AWA2_FILES, lambda files: Tested(files=read_awa2(files).files)),)
