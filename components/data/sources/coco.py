"""COCO's captions as published, with Karpathy's split file or COCO's own splits.

`prepare.folder` holds the images in `train2014` and `val2014`, or `train2017` and `val2017`, and either Karpathy's
`dataset_coco.json` (113,287 images to train, 5,000 to validate, 5,000 to test) or COCO's `annotations`, where images of
`captions_val<year>.json` test, and those to validate with are drawn from `captions_train<year>.json`.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ValidationError

from components.core.errors import InputError
from components.core.settings import Prepare
from components.data.karpathy import json_list, json_object, read_karpathy, told
from components.data.listed_images import listed_source
from components.data.listing import Line, Listing, checked_line, image_folder

_KARPATHY = "dataset_coco.json"
_YEARS = ("2017", "2014")
_HOW = "put Karpathy's split file there, or COCO's annotations/captions_train2017.json and captions_val2017.json"


class _Image(BaseModel):
    id: int
    file_name: str


class _Caption(BaseModel):
    image_id: int
    caption: str


def read_listing(settings: Prepare) -> Listing:
    """Captions with published splits.

    Raises:
        InputError: the folder or its files are missing, damaged or laid out otherwise.
    """
    folder = image_folder(settings)
    if (folder / _KARPATHY).is_file():
        return read_karpathy(folder / _KARPATHY, folder, settings)
    year = next((year for year in _YEARS if _annotations(folder, "train", year).is_file()), None)
    if year is None:
        raise InputError(f"{folder / _KARPATHY} is missing: {_HOW}")
    lines = []
    for part, split in (("train", "train"), ("val", "test")):
        lines += _lines(_annotations(folder, part, year), f"{part}{year}", split, settings)
    return Listing(_annotations(folder, "train", year), folder, lines)


def _lines(file: Path, images: str, split: str, settings: Prepare) -> list[Line]:
    if not file.is_file():
        raise InputError(f"{file} is missing: {_HOW}")
    content = json_object(file)
    try:
        names = {one.id: one.file_name for one in map(_Image.model_validate, json_list(file, content, "images"))}
        captions = [_Caption.model_validate(one) for one in json_list(file, content, "annotations")]
    except ValidationError as error:
        raise InputError(f"{file} is not as published ({told(error)}): fetch it again") from None
    lines = []
    for number, caption in enumerate(captions):
        place = f"annotations[{number}]"
        if caption.image_id not in names:
            raise InputError(f"{file}: {place} has image_id {caption.image_id}, which `images` lacks: fetch it again")
        line = Line(place, f"{images}/{names[caption.image_id]}", caption.caption, split=split)
        lines.append(checked_line(file, line, settings))
    return lines


def _annotations(folder: Path, part: str, year: str) -> Path:
    return folder / "annotations" / f"captions_{part}{year}.json"


def find(folder: Path) -> str | None:
    """See `Source`."""
    files = [folder / _KARPATHY, *(_annotations(folder, "train", year) for year in _YEARS)]
    return next((str(file.relative_to(folder)) for file in files if file.is_file()), None)


SOURCE = listed_source(read_listing, find, _KARPATHY, _HOW, people=True)
