"""Converts pictures of any mode and depth to 8-bit RGB."""

from __future__ import annotations

import numpy as np
from PIL import Image
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile


def rgb(image: Image.Image) -> Image.Image:
    """`image` in RGB with 8 bits a channel; 12 and 16 bits of grey are scaled, where Pillow makes all above 255 white.

    Raises:
        OSError, SyntaxError: it cannot be decoded.
        ValueError: see `check_mode`.
    """
    check_mode(image)
    if image.mode.startswith("I;16"):
        white = 2 ** _bits(image) - 1
        image = Image.fromarray(np.rint(np.asarray(image) * (255.0 / white)).astype(np.uint8))
    return image.convert("RGB")


def check_mode(image: Image.Image) -> None:
    """Refuse an opened image that `rgb` cannot convert, before its pixels are decoded.

    Raises:
        ValueError: its pixels are floats or 32-bit integers, and nothing says which of them is white.
    """
    if image.mode in ("F", "I"):
        raise ValueError(f"nothing says which pixel of Pillow's mode {image.mode} is white: save it with 8 or 16 bits")


def _bits(image: Image.Image) -> int:
    # Pillow reads 12 bits of a TIFF into 16 as they are.
    return image.tag_v2.get(BITSPERSAMPLE, (16,))[0] if isinstance(image, TiffImageFile) else 16
