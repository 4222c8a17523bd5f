"""Pictures that benchmarks show an encoder: opened one at a time, cropped and prepared as the protocol says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PIL import Image

from components.core.errors import InputError
from components.core.rgb import open_picture

if TYPE_CHECKING:
    from torch import Tensor


Box = tuple[int, ...]
"""Left, top, width and height in pixels."""


@dataclass(frozen=True)
class Picture:
    """A picture that is opened when it is needed.

    Attributes:
        name: how errors call it; with `stamp`, what tells it from all others of its benchmark.
        stamp: changes when the picture does, such as its size and time of change.
        open: gives the picture, whose pixels may not be decoded yet; raises as `components.core.rgb.open_picture`.
        encoded: gives the bytes that it is published as; None where it is published as bare pixels.
    """

    name: str
    stamp: str
    open: Callable[[], AbstractContextManager[Image.Image]]
    encoded: Callable[[], bytes] | None = None


def picture_file(path: Path, box: Box | None = None) -> Picture:
    """An image file, or the part of it within `box`.

    Raises:
        InputError: the file is missing.
    """
    try:
        status = path.stat()
    except OSError:
        raise InputError(f"{path} is missing: the benchmark's annotations name it") from None
    name = path.name if box is None else f"{path.name}[{','.join(map(str, box))}]"

    @contextmanager
    def opened() -> Iterator[Image.Image]:
        left, top, width, height = box or (0, 0, 0, 0)
        with open_picture(path) as image:
            yield image if box is None else image.crop((left, top, left + width, top + height))

    return Picture(name, f"{path} {status.st_size} {status.st_mtime_ns}", opened, path.read_bytes)


def picture_bytes(name: str, content: bytes) -> Picture:
    """An encoded image in memory, such as a member of an archive."""
    import hashlib

    stamp = hashlib.sha256(content).hexdigest()
    return Picture(name, stamp, lambda: open_picture(content), lambda: content)


@dataclass(frozen=True)
class Preparation:
    """One way.

    Attributes:
        name: tells its features from those of others in the cache; empty for CLIP's own.
        fitted: RGB pixels `[size, size, 3]` of an opened image; raises as `components.encoders.adapter.images.fitted`.
        normalised: the tower's input of uint8 pixels `[images, 3, size, size]`; uint8 is left for the tower to do.
    """

    name: str
    fitted: Callable[[Image.Image, int], npt.NDArray[np.uint8]]
    normalised: Callable[[Tensor], Tensor]


def _fitted(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    from components.encoders.adapter.images import fitted

    return fitted(image, size)


def _squashed(image: Image.Image, size: int) -> npt.NDArray[np.uint8]:
    from components.encoders.adapter.images import squashed

    return squashed(image, size)


def _as_imagenet(pixels: Tensor) -> Tensor:
    from components.encoders.adapter.images import as_imagenet

    return as_imagenet(pixels)


CLIP = Preparation("", _fitted, lambda pixels: pixels)
"""The shorter side resized, the middle cut out, CLIP's mean and deviation."""
SQUASHED = Preparation("squashed, ImageNet's mean", _squashed, _as_imagenet)
"""Both sides resized, whatever their ratio, and ImageNet's mean and deviation (SemCLIP's src/dataset.py)."""
