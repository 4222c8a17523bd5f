"""COCO-P and COCO-PE: 4,155 queries about COCO images with a paraphrase each (Cheng et al. 2024, section 3).

The galleries are COCO's 5,000 validation images of 2017 and, for COCO-PE, the 123,403 unlabeled ones as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from components.core.pictures.folder import is_ignored
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles

NAME, FOLDER = "coco_p", "coco_p"
FILE, VALIDATION, UNLABELED = "coco_p.json", "val2017", "unlabeled2017"
PAIRS = 4_155
IMAGES = {VALIDATION: 5_000, UNLABELED: 123_403}
"""Folder -> number of images that COCO publishes in it."""
PAIRS_FILE = RequiredFile(
    FILE, f"{PAIRS:,} pairs in this project's format", "1 MB", "not stated", "the authors of COCO-P"
)
VALIDATION_FILE, UNLABELED_FILE = (
    RequiredFile(folder, f"COCO {folder}, {IMAGES[folder]:,} images", size, "Flickr terms", "cocodataset.org")
    for folder, size in ((VALIDATION, "1 GB"), (UNLABELED, "19 GB"))
)


@dataclass(frozen=True)
class QueryPairs:
    """Queries with their paraphrases, row by row.

    Attributes:
        images: file names of the images that the queries describe `[pairs]`.
    """

    queries: list[str]
    paraphrases: list[str]
    images: list[str]


def read_query_pairs(files: TestSetFiles) -> QueryPairs:
    """The rows of `coco_p.json`, which is this project's own format.

    A JSON list of objects: `image`, a file name in `val2017/`, or `image_id`, COCO's number; `query` or `caption`;
    `paraphrase`.
    """
    rows = [_renamed(row) for row in files.read_rows(FILE, {})]
    good = files.complete_rows(FILE, rows, {"image": str, "query": str, "paraphrase": str})
    files.expect(FILE, len(good), PAIRS)
    return QueryPairs(*([row[name] for row in good] for name in ("query", "paraphrase", "image")))


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    image = row.get("image")
    if isinstance(row.get("image_id"), int):
        image = f"{row['image_id']:012d}.jpg"
    return {
        "image": PurePosixPath(image).name if isinstance(image, str) else None,
        "query": row.get("query", row.get("caption")),
        "paraphrase": row.get("paraphrase"),
    }


def image_files(folder: Path) -> list[Path]:
    """The images in `folder`, sorted by name."""
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() in {".jpg", ".png"} and not is_ignored(path.name)
    )


def _tested(files: TestSetFiles) -> Tested:
    """Queries and paraphrases, and all existing images of the larger gallery."""
    pairs = read_query_pairs(files)
    folders = [files.folder / name for name in IMAGES if (files.folder / name).is_dir()]
    return Tested([*pairs.queries, *pairs.paraphrases], [path for folder in folders for path in image_files(folder)])


TEST_SETS = (TestSet(NAME, FOLDER, (PAIRS_FILE, VALIDATION_FILE), _tested),)
