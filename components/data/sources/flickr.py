"""Flickr8k and Flickr30k as published: a file of captions, published splits, and a folder of images.

Flickr8k has `Flickr8k.token.txt` and `Flickr_8k.{train,dev,test}Images.txt` (Hodosh et al. 2013). Flickr30k has no
splits of its own; with both, and alone for either, Karpathy's `dataset_flickr8k.json` or `dataset_flickr30k.json` does.
Beside Flickr8k's captions may lie what people think of some of them, see `components.data.people.ratings`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from components.core.errors import InputError
from components.core.settings import Prepare, Settings
from components.data.karpathy import read_karpathy
from components.data.listed_images import listed_source
from components.data.listing import Line, Listing, checked_line, image_folder
from components.data.people.ratings import caption_ratings
from components.data.source import EvaluationTables, Pair

_TOKENS = "Flickr8k.token.txt"
_SPLITS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}
_KARPATHY = ("dataset_flickr8k.json", "dataset_flickr30k.json")
_FOLDERS = ("images", "Images", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images", "flickr30k_images")
"""Where the images lie, as the archives and their mirrors unpack; the first is spelled as published."""
_HOW = "put the published caption and split files there, see components/data/sources/flickr.py"


def read_listing(settings: Prepare) -> Listing:
    """Captions with published splits. Images in no published split are left out, and the user is told how many.

    Raises:
        InputError: the folder, its files or the images' folder are missing or damaged.
    """
    folder = image_folder(settings)
    images = next((folder / name for name in _FOLDERS if (folder / name).is_dir()), None)
    if images is None:
        raise InputError(f"{folder} has no folder of images: unpack them there as {_FOLDERS[0]}")
    for name in _KARPATHY:
        if (folder / name).is_file():
            return read_karpathy(folder / name, images, settings)
    split_of = {image: split for split, name in _SPLITS.items() for image in _names(folder / name)}
    file = folder / _TOKENS
    lines, strays = [], set()
    for number, (image, _, caption) in enumerate(_captions(file), 1):
        if image in split_of:
            lines.append(checked_line(file, Line(f"line {number}", image, caption, split=split_of[image]), settings))
        else:
            strays.add(image)
    if strays:
        print(f"{file}: {len(strays)} images are in no published split and are left out, first {min(strays)}")
    return Listing(file, images, lines)


def _captions(file: Path) -> Iterator[tuple[str, str, str]]:
    """Image, number and text of each caption, one in each line."""
    for number, row in enumerate(_rows(file), 1):
        token, tab, caption = row.partition("\t")
        image, hash_sign, place = token.rpartition("#")
        if not tab or not hash_sign:
            raise InputError(f"{file}: line {number} is not <image>#<n><TAB><caption>: fetch it again")
        yield image, place, caption


def _evaluation(settings: Settings, test: list[Pair]) -> EvaluationTables:
    """What every listed source has, and what people think of captions, where that is there."""
    tables, folder = _LISTED.evaluation(settings, test), image_folder(settings.prepare)
    if not (folder / _TOKENS).is_file():
        return tables
    captions = {f"{image}#{place}": text.strip() for image, place, text in _captions(folder / _TOKENS)}
    return tables | caption_ratings(folder, captions, {Path(pair.name).name: pair.image_id for pair in test})


def _names(file: Path) -> list[str]:
    return [name.strip() for name in _rows(file) if name.strip()]


def _rows(file: Path) -> list[str]:
    try:
        # Not `splitlines`: captions may hold characters such as U+2028 that it takes for the end of a line.
        return file.read_text("utf-8-sig").removesuffix("\n").split("\n")
    except FileNotFoundError:
        raise InputError(f"{file} is missing: {_HOW}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}): fetch it again") from None


def find(folder: Path) -> str | None:
    """See `Source`."""
    return next((name for name in (*_KARPATHY, _TOKENS) if (folder / name).is_file()), None)


_LISTED = listed_source(read_listing, find, _TOKENS, _HOW, people=True)
SOURCE = replace(_LISTED, evaluation=_evaluation)
