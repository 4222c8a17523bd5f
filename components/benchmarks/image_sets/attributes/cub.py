"""CUB-200-2011 (Wah et al. 2011) as published: lists of images and of the split, images in a folder per class."""

from __future__ import annotations

from pathlib import Path

from components.benchmarks.benchmark import Need
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.errors import InputError

TEST_IMAGES = 5794
_SOURCE = "vision.caltech.edu/datasets/cub_200_2011, CUB_200_2011.tgz"
_LICENCE = "research only, images of their photographers"
NEEDS = (
    Need("images.txt", "11,788 names", "1 MB", _LICENCE, _SOURCE),
    Need("train_test_split.txt", "11,788 rows", "1 MB", _LICENCE, _SOURCE),
    Need("images", "a folder per class", "1.2 GB", _LICENCE, _SOURCE),
)


def read_cub_test_images(context: PublishedContext) -> tuple[str, ...]:
    """Names of the test images below `images/`, in the order of `images.txt`.

    Raises:
        InputError: a line is no pair, the two lists differ, or there are not 5,794 test images.
    """
    names, train = _pairs(context.folder / "images.txt"), _pairs(context.folder / "train_test_split.txt")
    if names.keys() != train.keys():
        raise InputError(f"{context.folder}: images.txt and train_test_split.txt list other images: fetch both again")
    found = tuple(name for number, name in names.items() if train[number] == "0")
    context.expect("train_test_split.txt: test images", len(found), TEST_IMAGES)
    return found


def _pairs(path: Path) -> dict[str, str]:
    rows = [line.split() for line in path.read_text("utf-8").splitlines() if line.strip()]
    for number, row in enumerate(rows, 1):
        if len(row) != 2:
            raise InputError(f"{path}: line {number} is not 'number value': fetch it again")
    return {row[0]: row[1] for row in rows}
