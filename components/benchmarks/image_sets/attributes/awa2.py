"""Animals with Attributes 2 (Xian et al. 2018) as published: classes, attributes, and images in a folder per class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.benchmarks.benchmark import Need
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.errors import InputError
from components.core.metrics import Indices

CLASSES, PREDICATES, TEST_CLASSES, TEST_IMAGES = 50, 85, 10, 7913
_SOURCE = "cvml.ista.ac.at/AwA2, AwA2-base.zip"
_LICENCE = "not stated"
NEEDS = (
    Need("classes.txt", f"{CLASSES} names", "1 kB", _LICENCE, _SOURCE),
    Need("testclasses.txt", f"{TEST_CLASSES} names", "1 kB", _LICENCE, _SOURCE),
    Need("predicates.txt", f"{PREDICATES} names", "2 kB", _LICENCE, _SOURCE),
    Need("predicate-matrix-binary.txt", f"{CLASSES} x {PREDICATES} zeros and ones", "9 kB", _LICENCE, _SOURCE),
    Need(
        "JPEGImages",
        "a folder per class",
        "13 GB, the test classes 3 GB",
        "free licences of Flickr and Wikipedia",
        "cvml.ista.ac.at/AwA2, AwA2-data.zip",
    ),
)


@dataclass(frozen=True)
class Awa2:
    """Classes, attributes and test images.

    Attributes:
        classes: all class names, in the order of `classes.txt` and of the matrix.
        test_classes: the names of the test classes in alphabetical order; the test images' labels count these.
        predicates: names of the attributes.
        matrix: which class has which attribute, `[classes, predicates]`.
        files: the test images, class after class.
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


def read_awa2(context: PublishedContext) -> Awa2:
    """Read the context's folder.

    Raises:
        InputError: a file is damaged, they do not fit together, or there is not as much as is published.
    """
    folder = context.folder
    classes, predicates = _numbered(folder / "classes.txt"), _numbered(folder / "predicates.txt")
    test_classes = tuple(sorted((folder / "testclasses.txt").read_text("utf-8").split()))
    context.expect("classes.txt", len(classes), CLASSES)
    context.expect("testclasses.txt", len(test_classes), TEST_CLASSES)
    if len(predicates) != PREDICATES:
        raise InputError(f"{folder / 'predicates.txt'} has {len(predicates)} names, not {PREDICATES}: fetch it again")
    for name in test_classes:
        if name not in classes:
            raise InputError(f"{folder / 'testclasses.txt'}: '{name}' is not in classes.txt: fetch both again")
    matrix = _matrix(folder / "predicate-matrix-binary.txt", len(classes))
    files = [_images(folder / "JPEGImages" / name) for name in test_classes]
    labels = np.repeat(np.arange(len(files), dtype=np.int64), [len(found) for found in files])
    context.expect("JPEGImages: images of test classes", len(labels), TEST_IMAGES)
    return Awa2(classes, test_classes, predicates, matrix, tuple(path for found in files for path in found), labels)


def _numbered(path: Path) -> tuple[str, ...]:
    """Names of lines such as "  1<tab>antelope", which must be numbered from 1."""
    rows = [line.split() for line in path.read_text("utf-8").splitlines() if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != 2 or row[0] != str(number):
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
