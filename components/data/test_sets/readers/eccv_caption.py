"""ECCV Caption (Chun et al. 2022) and CxC: COCO's test images with all captions that annotators found to match.

Both sets of matches come with the package `eccv-caption` (MIT), which is read as data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

import numpy as np

from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles

NAME, FOLDER, FILE, PICTURES = "eccv_caption", "coco", "captions_val2014.json", "val2014"
FILES = (
    RequiredFile(FILE, "COCO's validation captions with their ids", "20 MB", "CC BY 4.0", "cocodataset.org"),
    RequiredFile(PICTURES, "COCO val2014; its 5,000 test images are enough", "6 GB", "Flickr terms", "cocodataset.org"),
)
_PACKAGE_FILES = {"text_to_image": "caption_to_image", "image_to_text": "image_to_caption"}
"""Retrieval direction -> its part of the names of the package's files."""

Matches = Mapping[int, list[int]]
"""COCO's id of a query -> the ids of its matches."""


@dataclass(frozen=True)
class PublishedMatches:
    """The content of the package, by COCO's ids.

    Attributes:
        about: the image that each caption was written for.
        eccv, cxc: direction -> its matches.
    """

    captions: list[int]
    images: list[int]
    about: Mapping[int, int]
    eccv: Mapping[str, Matches]
    cxc: Mapping[str, Matches]


@cache
def published_matches() -> PublishedMatches:
    """The package's matches."""
    folder = Path(str(distribution("eccv-caption").locate_file("eccv_caption"))) / "data"

    def matches(name: str, direction: str) -> Matches:
        raw = json.loads((folder / f"{name}_{_PACKAGE_FILES[direction]}.json").read_text("utf-8"))
        return {int(query): ids for query, ids in raw.items()}

    captions = np.load(folder / "coco_test_ids.npy", allow_pickle=False).tolist()
    about = {caption: images[0] for caption, images in matches("original", "text_to_image").items()}
    eccv, cxc = ({way: matches(name, way) for way in _PACKAGE_FILES} for name in ("eccv", "cxc"))
    return PublishedMatches(captions, sorted(set(about.values())), about, eccv, cxc)


def read_captions(files: TestSetFiles) -> dict[int, str]:
    """Texts of the gallery's captions by their ids, from COCO's own file of validation captions."""
    wanted = published_matches().captions
    (annotations,) = files.read_lists(FILE, "annotations")
    rows = files.complete_rows(f"{FILE}: annotations", annotations, {"id": int, "caption": str})
    chosen = set(wanted)
    texts = {row["id"]: row["caption"] for row in rows if row["id"] in chosen}
    files.expect(f"{FILE}: test captions", len(texts), len(wanted))
    return {caption: texts[caption] for caption in wanted if caption in texts}


def image_name(image: int) -> str:
    """File name of an image."""
    return f"COCO_val2014_{image:012d}.jpg"


def _tested(files: TestSetFiles) -> Tested:
    images = [files.folder / PICTURES / image_name(image) for image in published_matches().images]
    return Tested([*read_captions(files).values()], images)


TEST_SETS = (TestSet(NAME, FOLDER, FILES, _tested),)
