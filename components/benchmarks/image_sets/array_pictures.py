"""Pictures whose pixels lie uncompressed in one file."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from components.benchmarks.encoding.picture_source import Picture


def array_pictures(file: str, pixels: npt.NDArray[np.uint8]) -> list[Picture]:
    """A picture for each row of `pixels`, `[images, height, width, 3]` or grey `[images, height, width]`."""
    return [_picture(f"{file}[{number}]", row) for number, row in enumerate(pixels)]


def _picture(name: str, pixels: npt.NDArray[Any]) -> Picture:
    stamp = hashlib.sha256(pixels.tobytes()).hexdigest()
    return Picture(name, f"{pixels.shape} {stamp}", lambda: Image.fromarray(np.ascontiguousarray(pixels)))
