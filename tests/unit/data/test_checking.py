"""What `prepare` says of encoded pictures."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from components.core.settings import Settings
from components.data.checked_pictures import check_picture
from components.data.source import UnusableError
from components.data.sources import find_source


def _tiff(kind: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.linspace(0, 1, 256).reshape(16, 16).astype(kind)).save(buffer, "TIFF")
    return buffer.getvalue()


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_what_no_encoder_can_be_shown_cannot_be_used(kind: Any) -> None:
    with pytest.raises(
        UnusableError, match=r"x\.tif is not a readable image \(.* save it with 8 or 16 bits\): replace"
    ):
        check_picture(_tiff(kind), "x.tif")


def _saved(size: tuple[int, int], kind: str, mode: str = "L") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, size).save(buffer, kind)
    return buffer.getvalue()


_POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n%%EOF\n"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (_POSTSCRIPT, "no known format"),
        (_saved((16, 16), "ICO"), "no known format"),
        (_saved((10_000, 4_001), "PNG", "1"), "10000x4001 pixels are more than 40,000,000"),
        (_saved((257, 1), "PNG"), "257x1 pixels are too long and narrow"),
        (_saved((64, 64), "AVIF")[:-20] + bytes(20), "Failed to decode frame 0: .*"),
    ],
    ids=["postscript", "icon", "huge", "narrow", "AVIF"],
)
def test_a_bad_picture_has_one_reason(raw: bytes, reason: str) -> None:
    """Whatever a picture's name: Pillow has PostScript drawn by Ghostscript."""
    with pytest.raises(UnusableError, match=rf"^x\.jpg is not a readable image \({reason}\): replace or remove it$"):
        check_picture(raw, "x.jpg")


@pytest.mark.parametrize("kind", [RuntimeError, TypeError, NotImplementedError, AttributeError, MemoryError])
def test_an_error_of_any_kind_is_the_pictures(kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise kind

    monkeypatch.setattr(Image.Image, "draft", fail)
    with pytest.raises(UnusableError, match=rf"x\.png is not a readable image \({kind.__name__}\)"):
        check_picture(_saved((16, 16), "PNG"), "x.png")


def test_16_bits_can_be_used() -> None:
    check_picture(_tiff(np.uint16), "x.tif")


def test_a_picture_of_floats_is_listed(tmp_path: Any, raw_params: dict[str, Any], png: Any) -> None:
    for number in range(5):
        (tmp_path / f"{number}.png").write_bytes(_tiff(np.float32) if number == 2 else png((number, 0, 0)))
    rows = "".join(f"{number}.png\tpicture {number}\n" for number in range(5))
    (tmp_path / "captions.tsv").write_text(f"image\tcaption\n{rows}")
    counts = {"train": 2, "val": 1, "test": 1}
    raw_params["prepare"] |= {"source": "folder", "folder": str(tmp_path), "counts": counts, "max_unusable_share": 0.5}
    unusable: list[Any] = []
    pairs = list(find_source("folder").usable(Settings.model_validate(raw_params), unusable))
    assert sorted(pair.caption for pair in pairs) == [f"picture {number}" for number in (0, 1, 3, 4)]
    (told,) = unusable
    assert "2.png is not a readable image (nothing says which pixel of Pillow's mode F is white" in told.reason
