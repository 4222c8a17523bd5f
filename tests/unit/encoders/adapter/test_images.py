"""Pixels are those that the field's own preprocessing gives."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import open_clip
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from components.core.system.errors import InputError
from components.encoders.adapter.images import Preparation
from tests.support.shard_making import encoded


def _noise(width: int, height: int) -> Image.Image:
    pixels = np.random.default_rng(width * 100 + height).integers(0, 256, (height, width, 3))
    return Image.fromarray(pixels.astype(np.uint8))


def _input(pictures: list[bytes], preparation: Preparation) -> torch.Tensor:
    return preparation.normalise(preparation.decode(pictures))[0]


@given(
    width=st.integers(5, 90),
    height=st.integers(5, 90),
    size=st.sampled_from([16, 17, 24]),
    mode=st.sampled_from(["RGB", "L", "RGBA", "P", "LA"]),
    resize_mode=st.sampled_from(["shortest", "longest", "squash"]),
    interpolation=st.sampled_from(["bicubic", "bilinear"]),
)
def test_pixels_equal_open_clips_transform(
    width: int, height: int, size: int, mode: str, resize_mode: Any, interpolation: Any
) -> None:
    image = _noise(width, height).convert(mode)
    values = {"mean": (0.5, 0.4, 0.3), "std": (0.3, 0.2, 0.1), "fill_color": 7}
    ways = {"resize_mode": resize_mode, "interpolation": interpolation}
    wanted = open_clip.image_transform(size, is_train=False, **values, **ways)(image)
    found = _input([encoded(image)], Preparation(size=size, **values, **ways))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)


def _tiff_of_12_bits(grey: npt.NDArray[np.uint16]) -> bytes:
    """Pillow writes none, so by the TIFF 6.0 specification: two pixels in three bytes, one strip, nine tags."""
    pairs = grey.reshape(-1, 2).astype(np.uint32)
    packed = b"".join(int(one << 12 | other).to_bytes(3, "big") for one, other in pairs)
    height, width = grey.shape
    tags = {256: width, 257: height, 258: 12, 259: 1, 262: 1, 273: 8, 277: 1, 278: height, 279: len(packed)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    header, count = struct.pack("<2sHI", b"II", 42, 8 + len(packed)), struct.pack("<H", len(tags))
    return header + packed + count + entries + struct.pack("<I", 0)


def test_damaged_pictures_bombs_and_pixels_without_a_known_range_are_refused() -> None:
    whole = encoded(_noise(40, 40))
    for cut in (0, 30, 200):
        with pytest.raises(InputError, match=r"image row 1 cannot be decoded \("):
            Preparation(size=16).decode([whole, whole[:cut]])
    with pytest.raises(InputError, match="too long and narrow"):
        Preparation(size=224).decode([encoded(Image.new("1", (20_000, 2)))])
    for kind in (np.float32, np.int32):
        picture = encoded(Image.fromarray(np.linspace(0, 1, 256).reshape(16, 16).astype(kind)), "TIFF")
        with pytest.raises(InputError, match=r"image x\.tif cannot be decoded \(.* save it with 8 or 16 bits\)"):
            Preparation(size=16).decode([picture], ["x.tif"])


def test_a_picture_is_turned_by_its_orientation_as_open_clip_would_prepare_the_turned_one() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = encoded(_noise(20, 40), exif=exif)
    opened = Image.open(io.BytesIO(picture))
    assert opened.getexif()[0x0112] == 6
    wanted = open_clip.image_transform(16, is_train=False)(ImageOps.exif_transpose(opened))
    torch.testing.assert_close(_input([picture], Preparation(size=16)), wanted, atol=1e-6, rtol=0)


def test_16_and_12_bits_of_grey_become_8() -> None:
    """0 stays black, the largest value is white, and each step of 257 of 65,535 is one of 8 bits."""
    grey = np.arange(256, dtype=np.uint16).reshape(16, 16)
    between = Image.fromarray(np.full((16, 16), 100 * 257 + 100, dtype=np.uint16))
    for kind in ("PNG", "TIFF"):
        assert (Preparation(size=16).decode([encoded(Image.fromarray(grey * 257), kind)])[0].numpy() == grey).all()
        assert Preparation(size=16).decode([encoded(between, kind)]).unique().tolist() == [100]
    grey = np.array([[0, 1000], [2048, 4095]], dtype=np.uint16).repeat(8, axis=0).repeat(8, axis=1)
    found = Preparation(size=16).decode([_tiff_of_12_bits(grey)])[0].numpy()[0][::8, ::8]
    assert found.tolist() == [[0, 62], [128, 255]]
