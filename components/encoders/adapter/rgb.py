"""Converts pictures of any mode and depth to 8-bit RGB."""

from __future__ import annotations

import numpy as np
from PIL import Image


def rgb(image: Image.Image) -> Image.Image:
    """`image` in RGB with 8 bits a channel; 16 bits of grey are scaled, where Pillow makes all above 255 white.

    Raises:
        OSError, SyntaxError: it cannot be decoded.
        ValueError: its pixels are floats or 32-bit integers, and nothing says which of them is white.
    """
    if image.mode in ("F", "I"):
        raise ValueError(f"nothing says which pixel of Pillow's mode {image.mode} is white: save it with 8 or 16 bits")
    if image.mode.startswith("I;16"):
        image = Image.fromarray(np.rint(np.asarray(image) / 257.0).astype(np.uint8))
    return image.convert("RGB")
