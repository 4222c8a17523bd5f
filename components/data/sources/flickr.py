"""Flickr8k (Hodosh et al. 2013) and Flickr30k as published: `Flickr8k.token.txt` with `Flickr_8k.*Images.txt`, or
Karpathy's `dataset_flickr8k.json` or `dataset_flickr30k.json`, and a folder of images.

Flickr8k may come with `ExpertAnnotations.txt`, three ratings from 1 to 4 of captions of its test images. As in SPICE
and CLIPScore, captions of the image itself are dropped, and each rating counts by itself: 16,992 rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from components.core.settings import Prepare, Settings
from components.core.system.errors import InputError
from components.core.system.user_files import read_file
from components.core.tables.records import CAPTION_RATINGS
from components.data.listed_images import Listing, image_folder, listed_source
from components.data.row_files import LIST_BOUND
from components.data.source import EvaluationTables, Pair, filled
from components.data.sources.coco import published_listing, read_karpathy

_TOKENS = "Flickr8k.token.txt"
_SPLITS = {
    "train": "Flickr_8k.trainImages.txt",
    "val": "Flickr_8k.devImages.txt",
    "test": "Flickr_8k.testImages.txt",
}
_KARPATHY = ("dataset_flickr8k.json", "dataset_flickr30k.json")
_FOLDERS = ("images", "Images", "Flicker8k_Dataset", "Flickr8k_Dataset", "flickr30k-images", "flickr30k_images")
"""Folders of the images in the archives and their mirrors; the first is spelled as published."""
RATINGS = "ExpertAnnotations.txt"
_HOW = "put the published caption and split files there, see components/data/sources/flickr.py"


def read_listing(settings: Prepare) -> Listing:
    """Captions with published splits. Images in no published split are left out; their number is printed."""
    folder = image_folder(settings)
    images = next((folder / name for name in _FOLDERS if (folder / name).is_dir()), None)
    if images is None:
        raise InputError(f"{folder} has no folder of images: unpack them there as {_FOLDERS[0]}")
    for name in _KARPATHY:
        if (folder / name).is_file():
            return read_karpathy(folder / name, images, settings)
    listed = {split: map(str.strip, _rows(folder / name)) for split, name in _SPLITS.items()}
    split_of = {image: split for split, images_of in listed.items() for image in images_of if image}
    file = folder / _TOKENS
    captions = list(_captions(file))
    if strays := {image for image, _, _ in captions} - set(split_of):
        print(f"{file}: {len(strays)} images are in no published split and are left out, first {min(strays)}")
    rows = (
        (f"line {number}", {"image": image, "caption": caption, "split": split_of[image]})
        for number, (image, _, caption) in enumerate(captions, 1)
        if image in split_of
    )
    return published_listing(file, images, rows, settings)


def _captions(file: Path) -> Iterator[tuple[str, str, str]]:
    for number, row in enumerate(_rows(file), 1):
        token, tab, caption = row.partition("\t")
        image, hash_sign, place = token.rpartition("#")
        if not tab or not hash_sign:
            raise InputError(f"{file}: line {number} is not <image>#<n><TAB><caption>: download it again")
        yield image, place, caption


def _evaluation(settings: Settings, test: list[Pair]) -> EvaluationTables:
    """The tables of every listed source, and the ratings of captions if there are any."""
    tables, folder = _LISTED.evaluation(settings, test), image_folder(settings.prepare)
    if not (folder / _TOKENS).is_file() or not (folder / RATINGS).is_file():
        return tables
    captions = {f"{image}#{place}": text.strip() for image, place, text in _captions(folder / _TOKENS)}
    rows = caption_ratings(folder / RATINGS, captions, {Path(pair.name).name: pair.image_id for pair in test})
    return tables | ({"caption_ratings": filled(CAPTION_RATINGS, rows)} if rows else {})


def caption_ratings(
    file: Path, captions: Mapping[str, str], image_ids: Mapping[str, str]
) -> list[tuple[str, str, float]]:
    """Rows of the table `caption_ratings`.

    Args:
        captions: key of a caption, `<image>#<n>`, -> its text.
        image_ids: file name of each test image -> its id.
    """
    own: dict[str, set[str]] = defaultdict(set)
    for key, caption in captions.items():
        own[key.rpartition("#")[0]].add(caption)
    rows = []
    for number, line in enumerate(_rows(file), 1):
        image, _, rest = line.partition("\t")
        key, *scores = rest.split("\t")
        if len(scores) != 3 or not set(scores) <= {"1", "2", "3", "4"}:
            raise InputError(
                f"{file}: line {number} is not an image, a caption's key and three of 1 to 4: download it again"
            )
        if key not in captions:
            raise InputError(f"{file}: line {number} names an unknown caption '{key}': download the captions again")
        if image in image_ids and captions[key] not in own[image]:
            rows += [(image_ids[image], captions[key], float(score)) for score in scores]
    return rows


def _rows(file: Path) -> list[str]:
    if not file.exists():
        raise InputError(f"{file} is missing: {_HOW}")
    try:
        # Not `splitlines`: it would split captions at characters such as U+2028.
        return read_file(file, file.parent, LIST_BOUND).decode("utf-8-sig").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}): download it again") from None


def find(folder: Path) -> str | None:
    """See `Source`."""
    return next((name for name in (*_KARPATHY, _TOKENS) if (folder / name).is_file()), None)


_LISTED = listed_source(read_listing, find, _TOKENS, _HOW, people=True)
SOURCE = replace(_LISTED, evaluation=_evaluation)
