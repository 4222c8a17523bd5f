"""Pictures of published test sets, opened one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from components.core.pictures.rgb import open_picture
from components.core.system.errors import InputError

Box = tuple[int, ...]
"""Left, top, width and height in pixels."""


@dataclass(frozen=True)
class LazyPicture:
    """A picture that is opened only when its pixels are needed.

    Attributes:
        name: for messages; together with `stamp` it identifies the picture within its benchmark.
        stamp: changes when the picture changes, such as its size and modification time.
        open: opens the picture without decoding its pixels; raises as `components.core.pictures.rgb.open_picture`.
        encoded: reads the published bytes; None if the picture is published as raw pixels.
    """

    name: str
    stamp: str
    open: Callable[[], AbstractContextManager[Image.Image]]
    encoded: Callable[[], bytes] | None = None


def picture_file(path: Path, box: Box | None = None) -> LazyPicture:
    """An image file, or the part of it within `box`."""
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

    return LazyPicture(name, f"{path} {status.st_size} {status.st_mtime_ns}", opened, path.read_bytes)


def picture_pixels(name: str, pixels: npt.NDArray[Any]) -> LazyPicture:
    """A picture of raw pixels, `[height, width, 3]` or grey `[height, width]`."""
    stamp = hashlib.sha256(pixels.tobytes()).hexdigest()
    return LazyPicture(name, f"{pixels.shape} {stamp}", lambda: Image.fromarray(np.ascontiguousarray(pixels)))
