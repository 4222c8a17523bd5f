"""The captions of images that a file lists, made of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.data.row_fields import RowFields, usable_captions
from components.data.source import EmptyRowError, Unusable, UnusableError

Row = tuple[str, Mapping[str, Any]]
"""Its place in the file, and its fields by column: `image` names the picture."""


@dataclass(frozen=True, slots=True)
class CaptionLine:
    """One caption of one image, as a file lists it.

    Attributes:
        place: its position in the file, such as `line 12`.
        paraphrase: a human paraphrase of it, or empty.
        split: train, val or test as published; empty if splits are drawn.
        item: the product that the image shows, or empty.
    """

    place: str
    image: str
    caption: str
    paraphrase: str = ""
    split: str = ""
    weight: float | None = None
    item: str = ""


def caption_lines(
    file: Path,
    rows: Iterable[Row],
    fields: RowFields,
    settings: Prepare,
    split: str = "",
    *,
    is_weighted: bool = False,
) -> tuple[list[CaptionLine], list[Unusable]]:
    """The captions of the rows, and the rows that are left out.

    Args:
        split: of rows that name none.
        is_weighted: whether `weight` is how often people chose the image, and not how heavy a product is.
    """
    lines, left_out = list[CaptionLine](), list[Unusable]()
    for place, row in rows:
        try:
            image, texts = _image(f"{file}: {place}", row), fields.read(f"{file}: {place}", row, split)
        except UnusableError as fault:
            left_out.append(Unusable.by(fault))
            continue
        weight = _weight(file, place, row.get("weight")) if is_weighted else None
        for caption in usable_captions(f"{file}: {place} ({image})", texts.captions, settings):
            if isinstance(caption, Unusable):
                left_out.append(caption)
                continue
            paraphrase = _paraphrase(f"{file}: {place} ({image})", row, settings, left_out)
            lines.append(CaptionLine(place, image, caption, paraphrase, texts.split, weight, texts.item))
    return lines, left_out


def _image(place: str, row: Mapping[str, Any]) -> str:
    image = row.get("image")
    if image is None or image == "" or (isinstance(image, float) and not isfinite(image)):
        raise EmptyRowError(f"{place} names no image: write or remove it")
    if not isinstance(image, str) or any("\ud800" <= letter <= "\udfff" for letter in image):
        raise UnusableError(f"{place} has no text as image: correct or remove it")
    return image


def _paraphrase(place: str, row: Mapping[str, Any], settings: Prepare, left_out: list[Unusable]) -> str:
    text = row.get("paraphrase")
    if not isinstance(text, str) or not text.strip():
        return ""
    (found,) = usable_captions(f"{place}: its paraphrase", [text], settings)
    if isinstance(found, Unusable):
        left_out.append(found)
        return ""
    return found


def _weight(file: Path, place: str, value: Any) -> float:
    if value is None or value == "":
        return 1.0
    try:
        weight = float("nan" if isinstance(value, bool) else value)
    except (TypeError, ValueError, OverflowError):
        weight = float("nan")
    # Sums of such weights stay finite.
    if not 0 < weight <= 1e300:
        raise InputError(f"{file}: {place} has weight '{str(value)[:40]}': write a number above 0, or nothing for 1")
    return weight
