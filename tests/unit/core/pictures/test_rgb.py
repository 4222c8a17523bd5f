"""Pictures are turned upright by their EXIF orientation in every format, lose their metadata, and are bounded."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import ExifTags, Image

from components.core.pictures.rgb import (
    TooLargeError,
    check_size,
    open_picture,
    rgb,
    upright,
    upright_jpeg,
    upright_rgb,
)
from components.core.system.errors import InputError
from components.data.checked_pictures import check_picture
from components.data.source import UnusableError
from components.encoders.adapter.images import Preparation
from components.evaluation.report.gallery import data_uri
from components.serving.explorer.server import small_jpeg

UPRIGHT = np.zeros((24, 16, 3), np.uint8)
UPRIGHT[:8] = (250, 0, 0)
UPRIGHT[:, :4] = (0, 250, 0)
TURNS = {
    1: lambda pixels: pixels,
    2: np.fliplr,
    3: lambda pixels: np.rot90(pixels, 2),
    4: np.flipud,
    5: lambda pixels: pixels.transpose(1, 0, 2),
    6: np.rot90,
    7: lambda pixels: np.rot90(pixels, 2).transpose(1, 0, 2),
    8: lambda pixels: np.rot90(pixels, -1),
}
"""EXIF orientation -> how the upright picture is stored."""


def sideways(orientation: int, format_: str = "PNG", **options: object) -> bytes:
    """The picture `UPRIGHT` stored so that the orientation turns it upright; its EXIF data name a place."""
    stream, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif[ExifTags.Base.ImageDescription] = "52.5 N 13.4 E"
    Image.fromarray(np.ascontiguousarray(TURNS[orientation](UPRIGHT))).save(stream, format_, exif=exif, **options)
    return stream.getvalue()


@pytest.mark.parametrize("orientation", TURNS)
@pytest.mark.parametrize("format_", ["PNG", "TIFF", "WEBP", "JPEG", "AVIF"])
def test_is_upright_and_has_no_metadata(format_: str, orientation: int) -> None:
    options = {"lossless": True} if format_ == "WEBP" else {} if format_ in ("PNG", "TIFF") else {"quality": 95}
    shown = upright_rgb(sideways(orientation, format_, **options))
    assert shown.size == (16, 24)
    assert np.abs(np.asarray(shown).astype(int) - UPRIGHT).mean() < (30 if options.get("quality") else 1)
    assert not shown.info
    assert b"13.4 E" not in upright_jpeg(sideways(orientation, format_), 64)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"garbage", b"II*\0\xff\xff\xff\xff", b"", b"MM\0*\0\0\0\x08\xff\xff"])
def test_a_damaged_orientation_is_ignored(exif: bytes) -> None:
    stream = io.BytesIO()
    Image.fromarray(UPRIGHT).save(stream, "PNG", exif=b"Exif\0\0" + exif)
    assert np.array_equal(upright_rgb(stream.getvalue()), UPRIGHT)


def test_grey_of_16_bits_is_turned_and_scaled() -> None:
    stream, exif = io.BytesIO(), Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    Image.fromarray(np.full((16, 24), 65535, np.uint16)).save(stream, "PNG", exif=exif)
    with open_picture(stream.getvalue()) as image:
        shown = rgb(upright(image))
    assert shown.size == (16, 24)
    assert np.asarray(shown).min() == 255


def test_a_users_picture_is_upright_for_the_tower_and_on_pages_but_a_published_one_is_as_stored() -> None:
    tower, raw = Preparation(size=16, resize_mode="squash"), sideways(6)
    own = tower.decode([raw])[0].permute(1, 2, 0).numpy()
    with Image.fromarray(UPRIGHT) as image:
        assert np.array_equal(own, tower.fitted(image))
    with open_picture(raw) as image:
        assert not np.array_equal(own, tower.fitted(image))
    for jpeg in (small_jpeg(raw, 128, "it"), upright_jpeg(raw, 128)):
        with open_picture(jpeg) as image:
            assert image.size == (16, 24)
    assert data_uri(sideways(6, "JPEG", quality=95)).startswith("data:image/jpeg")


def _tiff(tile: int) -> bytes:
    """A TIFF of 64x64 pixels in one compressed tile of this side."""
    payload = zlib.compress(b"\0" * 4096)
    values = {256: 64, 257: 64, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile, 323: tile, 324: 134, 325: len(payload)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    return b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + struct.pack("<I", 0) + payload


def _jpeg(scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    stream = io.BytesIO()
    Image.new("L", (64, 64), 128).save(stream, "JPEG", progressive=True)
    raw = stream.getvalue()
    last = raw.rfind(b"\xff\xda")
    return raw[:-2] + raw[last:-2] * scans + raw[-2:]


@pytest.mark.parametrize(
    ("raw", "why"), [(_tiff(40_000), "40000x40000 pixels are more"), (_jpeg(400), r"40\d scans are more than 200")]
)
def test_tiles_count_as_pixels_and_scans_are_counted(raw: bytes, why: str) -> None:
    with pytest.raises(UnusableError, match=why):
        check_picture(raw, "it")
    with pytest.raises(TooLargeError, match=why):
        upright_rgb(raw)
    with pytest.raises(InputError, match=why):
        Preparation(size=16).decode([raw])


def test_ordinary_tiles_and_scans_are_read() -> None:
    for raw in (_jpeg(10), sideways(6, "JPEG", progressive=True)):
        check_picture(raw, "it")
    with open_picture(_tiff(64)) as image:
        check_size(image)
