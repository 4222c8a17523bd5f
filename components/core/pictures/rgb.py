"""Opens encoded pictures, and converts them to 8-bit RGB; no other code opens pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError
from PIL.TiffImagePlugin import BITSPERSAMPLE, TiffImageFile

from components.core.system.errors import InputError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")
"""Pillow's names of the allowed formats. Pillow detects formats by a file's bytes, and has unsafe readers for
many more: one runs Ghostscript on the picture, others decode a picture before its size is known."""
MOST_PIXELS = 40_000_000
MOST_NARROW = 256
"""Maximum ratio of a picture's longer to its shorter side. A tower of 512 pixels resizes it to at most 67 million
pixels."""


class TooLargeError(ValueError):
    """A picture has too many pixels to be decoded, or is too narrow to be resized."""


@contextmanager
def open_picture(encoded: bytes | Path) -> Iterator[Image.Image]:
    """An encoded picture of one of `FORMATS` with undecoded pixels.

    Raises:
        ValueError: it cannot be opened, or the block cannot decode it; damaged and hostile bytes raise errors of every
            kind.
    """
    try:
        source = io.BytesIO(encoded) if isinstance(encoded, bytes) else encoded
        with Image.open(source, formats=FORMATS) as image:  # noqa: TID251
            if image.format == "MPO":
                # A JPEG of a phone with a second picture after the first.
                image.format = "JPEG"
            yield image
    except (InputError, ValueError):
        raise
    except UnidentifiedImageError:
        # Pillow's message has the address of the buffer.
        raise ValueError("no known format") from None
    except Image.DecompressionBombError as error:
        raise TooLargeError(str(error)) from None
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        raise ValueError(reason.splitlines()[0]) from None


def rgb(image: Image.Image) -> Image.Image:
    """`image` in RGB with 8 bits per channel; 12 and 16 bits of grey are scaled, whereas Pillow clips them at 255.

    Raises as `check_mode`.
    """
    check_mode(image)
    if image.mode.startswith("I;16"):
        # Pillow reads 12 bits of a TIFF into 16 without scaling.
        bits = image.tag_v2.get(BITSPERSAMPLE, (16,))[0] if isinstance(image, TiffImageFile) else 16
        image = Image.fromarray(np.rint(np.asarray(image) * (255.0 / (2**bits - 1))).astype(np.uint8))
    return image.convert("RGB")


def check_mode(image: Image.Image) -> None:
    """Refuse an opened image that `rgb` cannot convert, before its pixels are decoded.

    Raises:
        ValueError: its pixels are floats or 32-bit integers, whose value of white is undefined.
    """
    if image.mode in ("F", "I"):
        raise ValueError(f"white is undefined in Pillow's mode {image.mode}: save it with 8 or 16 bits")


def check_size(image: Image.Image) -> None:
    """Refuse an opened image that would take too much memory, before its pixels are decoded.

    Raises:
        TooLargeError: it has more than `MOST_PIXELS`, or see `check_narrow`.
    """
    if image.width * image.height > MOST_PIXELS:
        raise TooLargeError(f"{image.width}x{image.height} pixels are more than {MOST_PIXELS:,}")
    check_narrow(image)


def check_narrow(image: Image.Image) -> None:
    """Raise `TooLargeError` if an opened image is narrower than `MOST_NARROW` allows."""
    if max(image.size) > MOST_NARROW * min(image.size):
        raise TooLargeError(f"{image.width}x{image.height} pixels are too long and narrow")
