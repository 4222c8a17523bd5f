"""Opens encoded pictures, turns them upright, and converts them to 8-bit RGB; no other code opens pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError
from PIL.TiffImagePlugin import BITSPERSAMPLE, TILELENGTH, TILEWIDTH, TiffImageFile

from components.core.system.errors import InputError

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF", "PPM")
"""Pillow's names of the allowed formats. Pillow detects formats by a file's bytes, and has unsafe readers for
many more: one runs Ghostscript on the picture, others decode a picture before its size is known. HEIF is one more with
the package `pillow-heif`."""
HEIC_FIX = "pip install pillow-heif, or convert them to JPEG"
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1"})
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""The EXIF orientation of a picture -> what turns it upright."""
MOST_PIXELS = 40_000_000
MOST_SCANS = 200
"""Most scans of a JPEG; progressive ones have about ten. 60 bytes suffice for one, which takes 40 ms at 40 million
pixels."""
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
        with Image.open(source, formats=_formats()) as image:  # noqa: TID251
            if image.format == "MPO":
                # A JPEG of a phone with a second picture after the first.
                image.format = "JPEG"
            yield image
    except (InputError, ValueError):
        raise
    except UnidentifiedImageError:
        # Pillow's message has the address of the buffer.
        raise ValueError(f"a HEIC file: {HEIC_FIX}" if _starts_as_heic(encoded) else "no known format") from None
    except Image.DecompressionBombError as error:
        raise TooLargeError(str(error)) from None
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        raise ValueError(reason.splitlines()[0]) from None


@cache
def _formats() -> tuple[str, ...]:
    if not reads_heic():
        return FORMATS
    from pillow_heif import register_heif_opener

    register_heif_opener()
    return (*FORMATS, "HEIF")


@cache
def reads_heic() -> bool:
    """Whether the package is installed that reads pictures as phones of Apple write them."""
    return find_spec("pillow_heif") is not None


def is_heic(first: bytes) -> bool:
    """Whether a file with these first bytes (at least 64) is a HEIC picture, whatever its name."""
    return first[4:8] == b"ftyp" and first[8:12] in _HEIC_BRANDS and b"avif" not in first[:64]


def _starts_as_heic(encoded: bytes | Path) -> bool:
    if isinstance(encoded, bytes):
        return is_heic(encoded)
    with encoded.open("rb") as stream:
        return is_heic(stream.read(64))


def upright_rgb(encoded: bytes | Path) -> Image.Image:
    """An encoded picture in RGB as a viewer shows it: turned by its EXIF orientation; without any metadata.

    Raises:
        ValueError: as `open_picture`, `check_size` and `check_mode`.
    """
    with open_picture(encoded) as image:
        check_size(image)
        shown = rgb(upright(image))
    shown.info = {}
    return shown


def upright_jpeg(encoded: bytes | Path, side: int, quality: int = 85) -> bytes:
    """An encoded picture as an upright JPEG without metadata, at most `side` pixels long; raises as `upright_rgb`."""
    small, stream = upright_rgb(encoded), io.BytesIO()
    small.thumbnail((side, side))
    small.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def upright(image: Image.Image) -> Image.Image:
    """An opened picture, decoded and turned by its EXIF orientation; a damaged orientation is ignored, as by viewers.

    Pillow turns TIFF, and `pillow-heif` turns HEIC, when they are decoded.
    """
    image.load()
    try:
        turn = _TURNS.get(int(image.getexif().get(ExifTags.Base.Orientation, 1)))
    except Exception:
        # Damaged metadata raise errors of every kind.
        turn = None
    return image if turn is None else image.transpose(turn)


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
        TooLargeError: it, or one of its tiles, has more than `MOST_PIXELS`; it has more than `MOST_SCANS`; or see
            `check_narrow`.
    """
    # A TIFF of 64x64 pixels may have tiles of 40000x40000, which are decoded whole.
    tile = [image.tag_v2.get(tag, 0) for tag in (TILEWIDTH, TILELENGTH)] if isinstance(image, TiffImageFile) else []
    for width, height in (image.size, *([tile] if tile else [])):
        if not isinstance(width * height, int) or width * height > MOST_PIXELS:
            raise TooLargeError(f"{width}x{height} pixels are more than {MOST_PIXELS:,}")
    if image.format == "JPEG" and (scans := _scans(image)) > MOST_SCANS:
        raise TooLargeError(f"{scans:,} scans are more than {MOST_SCANS}")
    check_narrow(image)


def _scans(image: Image.Image) -> int:
    """The number of scans of an opened JPEG, each of which decodes all pixels; within a scan, the marker is escaped."""
    stream: Any = image.fp  # type: ignore[attr-defined]
    place = stream.tell()
    stream.seek(0)
    count = int(stream.read().count(b"\xff\xda"))
    stream.seek(place)
    return count


def check_narrow(image: Image.Image) -> None:
    """Raise `TooLargeError` if an opened image is narrower than `MOST_NARROW` allows."""
    if max(image.size) > MOST_NARROW * min(image.size):
        raise TooLargeError(f"{image.width}x{image.height} pixels are too long and narrow")
