"""CIFAR-100 in its binary version: the one form in which it is published without pickles."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from components.benchmarks.benchmark import Need
from components.benchmarks.encoding.picture_source import Picture
from components.benchmarks.encoding.published_context import PublishedContext
from components.core.errors import InputError
from components.core.metrics import Indices

TEST_IMAGES, SIDE = 10_000, 32
_RECORD = 2 + 3 * SIDE * SIDE
_SOURCE = "cs.toronto.edu/~kriz/cifar.html, cifar-100-binary.tar.gz"
NEEDS = (
    Need("test.bin", f"{TEST_IMAGES:,} records", "31 MB", "not stated", _SOURCE),
    Need("coarse_label_names.txt", "20 names", "1 kB", "not stated", _SOURCE),
    Need("fine_label_names.txt", "100 names", "1 kB", "not stated", _SOURCE),
)


@dataclass(frozen=True)
class Cifar100:
    """The test images.

    Attributes:
        coarse, fine: label of each image `[images]`.
        coarse_names, fine_names: names of the labels.
        pixels: `[images, 3, 32, 32]`.
    """

    coarse: Indices
    fine: Indices
    coarse_names: tuple[str, ...]
    fine_names: tuple[str, ...]
    pixels: npt.NDArray[np.uint8]

    def picture(self, row: int) -> Picture:
        """One image."""
        pixels = np.ascontiguousarray(self.pixels[row].transpose(1, 2, 0))
        return Picture(
            f"test.bin[{row}]", hashlib.sha256(pixels.tobytes()).hexdigest(), lambda: Image.fromarray(pixels)
        )


def read_cifar100(context: PublishedContext) -> Cifar100:
    """Read the context's folder: each record is a coarse label, a fine label and 3,072 bytes, channel by channel.

    Raises:
        InputError: the file is cut short, a label has no name, or there are not 10,000 records.
    """
    path = context.folder / "test.bin"
    content = np.fromfile(path, dtype=np.uint8)
    if not len(content) or len(content) % _RECORD:
        raise InputError(f"{path} is damaged ({len(content):,} bytes, no multiple of {_RECORD:,}): fetch it again")
    records = content.reshape(-1, _RECORD)
    context.expect("test.bin", len(records), TEST_IMAGES)
    coarse, fine = records[:, 0].astype(np.int64), records[:, 1].astype(np.int64)
    coarse_names = _names(context.folder / "coarse_label_names.txt", coarse)
    fine_names = _names(context.folder / "fine_label_names.txt", fine)
    return Cifar100(coarse, fine, coarse_names, fine_names, records[:, 2:].reshape(-1, 3, SIDE, SIDE))


def _names(path: Path, labels: Indices) -> tuple[str, ...]:
    names = tuple(path.read_text("utf-8").split())
    if labels.max() >= len(names):
        raise InputError(f"{path} has {len(names)} names, but test.bin has label {labels.max()}: fetch both again")
    return names
