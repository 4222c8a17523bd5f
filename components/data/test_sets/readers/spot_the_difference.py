"""Spot-the-Difference (Jhamtani 2018): pairs of camera frames with sentences about their differences."""

from __future__ import annotations

import re
from typing import Literal

from components.core.system.errors import InputError
from components.core.tables.folders import RequiredFile
from components.data.test_sets.files import Tested, TestSet, TestSetFiles

NAME, IMAGES, TEST_ROWS = "spot_the_difference", "resized_images", 1404
_SOURCE = "github.com/harsh19/spot-the-diff"
_FILE_NAME = re.compile(r"\w[\w.-]*")


def annotation_file(split: str, what: str, size: str) -> RequiredFile:
    """The annotations of a split."""
    return RequiredFile(f"annotations/{split}.json", what, size, "not stated", f"{_SOURCE}, data/annotations")


FILES = (
    annotation_file("test", f"{TEST_ROWS:,} rows", "170 kB"),
    RequiredFile(IMAGES, "<id>.png and <id>_2.png of every pair", "1.5 GB", "VIRAT, research only",
                 f"{_SOURCE}, data/get_images.txt"),
)  # fmt: skip


def read_frame_pairs(files: TestSetFiles, split: Literal["train", "val", "test"]) -> dict[str, list[str]]:
    """Image id -> the sentences about its pair, in the file's order; rows of one id are one pair, as in CLIP4IDC."""
    path = f"annotations/{split}.json"
    rows = files.read_rows(path, {"img_id": str, "sentences": list})
    if split == "test":
        files.expect(path, len(rows), TEST_ROWS)
    pairs: dict[str, list[str]] = {}
    for row in rows:
        if not _FILE_NAME.fullmatch(row["img_id"]):
            where = f"{files.folder / path}: img_id {row['img_id'][:60]!r}"
            raise InputError(f"{where} is not the name of a picture: fetch it again")
        sentences = [sentence.strip() for sentence in row["sentences"] if isinstance(sentence, str)]
        pairs.setdefault(row["img_id"], []).extend(sentence for sentence in sentences if sentence)
    if not any(pairs.values()):
        raise InputError(f"{files.folder / path} has no sentences: fetch it again")
    return pairs


def frame_names(image: str) -> tuple[str, str]:
    """File names of the two pictures of a pair."""
    return f"{image}.png", f"{image}_2.png"


def _tested(files: TestSetFiles) -> Tested:
    pairs = read_frame_pairs(files, "test")
    pictures = [files.folder / IMAGES / name for image in pairs for name in frame_names(image)]
    return Tested([sentence for sentences in pairs.values() for sentence in sentences], pictures)


TEST_SETS = (TestSet(NAME, NAME, FILES, _tested),)
