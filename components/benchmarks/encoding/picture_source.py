"""Pictures that benchmarks show an encoder: opened one at a time, cropped where the protocol says so."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from components.core.errors import InputError

Box = tuple[int, int, int, int]
"""Left, top, width and height in pixels."""


@dataclass(frozen=True)
class Picture:
    """A picture that is opened when it is needed.

    Attributes:
        name: how errors call it; with `stamp`, what tells it from all others of its benchmark.
        stamp: changes when the picture does, such as its size and time of change.
        open: gives the picture, whose pixels may not be decoded yet; raises `OSError` or `ValueError` where it cannot.
        encoded: gives the bytes that it is published as; None where it is published as bare pixels.
    """

    name: str
    stamp: str
    open: Callable[[], Image.Image]
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

    def opened() -> Image.Image:
        return _cropped(Image.open(path), box)

    return Picture(name, f"{path} {status.st_size} {status.st_mtime_ns}", opened, path.read_bytes)


def picture_bytes(name: str, content: bytes) -> Picture:
    """An encoded image in memory, such as a member of an archive."""
    import hashlib

    stamp = hashlib.sha256(content).hexdigest()
    return Picture(name, stamp, lambda: Image.open(io.BytesIO(content)), lambda: content)


def _cropped(image: Image.Image, box: Box | None) -> Image.Image:
    if box is None:
        return image
    left, top, width, height = box
    return image.crop((left, top, left + width, top + height))
