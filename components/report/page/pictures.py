"""Images of the gallery, small enough to be put into a page."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from components.core.errors import InputError
from components.core.records import PAIRS
from components.encoders.adapter.rgb import rgb

SIDE = 128
"""Pixels of a picture's longer side at most."""
_WEB_FORMATS = {"PNG", "JPEG", "WEBP", "GIF"}


@dataclass(frozen=True)
class Picture:
    """An image: its source as a data URI and its description."""

    src: str
    alt: str


def read_pictures(pairs_file: Path, rows: Iterable[int], side: int = SIDE) -> dict[int, Picture]:
    """The images of `rows` with their captions as description, `side` pixels long at most.

    Raises:
        InputError: an image cannot be decoded.
    """
    chosen = sorted(set(rows))
    found: dict[int, Picture] = {}
    for row, pair in zip(chosen, PAIRS.take(pairs_file, chosen, ["image", "caption"]).to_pylist(), strict=True):
        try:
            found[row] = Picture(data_uri(pair["image"], side), pair["caption"])
        except (UnidentifiedImageError, OSError, ValueError) as error:
            raise InputError(f"{pairs_file}: row {row} holds no image ({error}): run `dvc repro prepare`") from None
    return found


def data_uri(image: bytes, side: int = SIDE) -> str:
    """An encoded image as a data URI, scaled down where it is longer than `side` pixels."""
    with Image.open(io.BytesIO(image)) as opened:
        kind = opened.format or ""
        if max(opened.size) > side or kind not in _WEB_FORMATS:
            small = rgb(opened)
            small.thumbnail((side, side))
            stream = io.BytesIO()
            small.save(stream, "JPEG", quality=85)
            image, kind = stream.getvalue(), "JPEG"
    return f"data:image/{kind.lower()};base64,{base64.b64encode(image).decode('ascii')}"
