"""COCO's captions as published, with Karpathy's split file or COCO's own splits.

`prepare.folder` holds the images in `train2014` and `val2014`, or `train2017` and `val2017`, and either Karpathy's
`dataset_coco.json` (113,287 images to train, 5,000 to validate, 5,000 to test) or COCO's `annotations`, where images of
`captions_val<year>.json` test, and validation images are drawn from `captions_train<year>.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from pydantic import BaseModel

from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.system.user_files import checked_file
from components.core.tables.formats import read_record
from components.data.listed_images import Listing, image_folder, listed_source
from components.data.row_fields import Row, RowFields, listed_pairs
from components.data.source import Pair, Unusable

_KARPATHY = "dataset_coco.json"
_YEARS = ("2017", "2014")
_HOW = "put Karpathy's split file there, or COCO's annotations/captions_train2017.json and captions_val2017.json"
_AGAIN = "download it again"
PUBLISHED = ("image", "caption", "split")
"""Fields of the rows of published data sets."""


class _Sentence(BaseModel):
    raw: str


class _KarpathyImage(BaseModel):
    filename: str
    filepath: str = ""
    split: str
    sentences: list[_Sentence]


class _KarpathyFile(BaseModel):
    images: list[_KarpathyImage]


class _Image(BaseModel):
    id: int
    file_name: str


class _Caption(BaseModel):
    image_id: int
    caption: str


class _CaptionsFile(BaseModel):
    images: list[_Image]
    annotations: list[_Caption]


def read_listing(settings: Prepare) -> Listing:
    """Captions with published splits."""
    folder = image_folder(settings)
    if (folder / _KARPATHY).is_file():
        return read_karpathy(folder / _KARPATHY, folder, settings)
    year = next((year for year in _YEARS if _annotations(folder, "train", year).is_file()), None)
    if year is None:
        raise InputError(f"{folder / _KARPATHY} is missing: {_HOW}")
    listed = list[Pair | Unusable]()
    for part, split in (("train", "train"), ("val", "test")):
        file = _annotations(folder, part, year)
        if file.exists():
            checked_file(file, folder, settings.list_bound)
        listed += published_listing(file, folder, _rows(file, f"{part}{year}", split), settings)[1]
    return folder, listed


def published_listing(file: Path, folder: Path, rows: Iterable[Row], settings: Prepare) -> Listing:
    """The captions of rows that have no other fields than `PUBLISHED`; raises as `listed_pairs`."""
    fields = RowFields.of(settings)
    fields.columns(file, PUBLISHED)
    return folder, list(listed_pairs(file, rows, fields, settings))


def read_karpathy(file: Path, folder: Path, settings: Prepare) -> Listing:
    """All captions of a split file by Karpathy, `dataset_<name>.json`; COCO's `restval` trains."""
    checked_file(file, settings.folder, settings.list_bound)
    return published_listing(file, folder, _karpathy_rows(file), settings)


def _karpathy_rows(file: Path) -> Iterator[Row]:
    for number, image in enumerate(read_record(_KarpathyFile, file, _AGAIN).images):
        name = (Path(image.filepath) / image.filename).as_posix()
        for sentence in image.sentences:
            yield f"images[{number}]", {"image": name, "caption": sentence.raw, "split": image.split}


def _rows(file: Path, images: str, split: str) -> Iterator[Row]:
    content = read_record(_CaptionsFile, file, _HOW, _AGAIN)
    names = {image.id: image.file_name for image in content.images}
    for number, caption in enumerate(content.annotations):
        place = f"annotations[{number}]"
        if caption.image_id not in names:
            raise InputError(f"{file}: {place} has an unknown image_id {caption.image_id}: download it again")
        yield place, {"image": f"{images}/{names[caption.image_id]}", "caption": caption.caption, "split": split}


def _annotations(folder: Path, part: str, year: str) -> Path:
    return folder / "annotations" / f"captions_{part}{year}.json"


def find(folder: Path) -> str | None:
    """See `Source`."""
    files = [folder / _KARPATHY, *(_annotations(folder, "train", year) for year in _YEARS)]
    return next((str(file.relative_to(folder)) for file in files if file.is_file()), None)


SOURCE = listed_source(read_listing, find, _KARPATHY, _HOW, people=True)
