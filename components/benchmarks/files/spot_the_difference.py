"""Spot-the-Difference in its published files: pairs of frames of a surveillance camera, told apart by people."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from components.benchmarks.benchmark import Need
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.rows import read_rows
from components.core.errors import InputError

FOLDER = "spot_the_difference"
TEST_ROWS = 1404
IMAGES = "resized_images"
_SOURCE = "github.com/harsh19/spot-the-diff"
PICTURES = Need(
    IMAGES, "<id>.png and <id>_2.png of every pair", "1.5 GB", "VIRAT, research only", f"{_SOURCE}, data/get_images.txt"
)
_NAME = re.compile(r"\w[\w.-]*")


def split_file(split: Literal["train", "val", "test"]) -> str:
    """The file of a split, below the folder."""
    return f"annotations/{split}.json"


def split_need(split: Literal["train", "val", "test"], what: str, size: str) -> Need:
    """What a benchmark that reads a split says of its file."""
    return Need(split_file(split), what, size, "not stated", f"{_SOURCE}, data/annotations")


def read_pairs(context: PublishedContext, split: Literal["train", "val", "test"]) -> dict[str, list[str]]:
    """Image id -> the sentences about its pair, in the file's order; rows of one id are one pair, as in CLIP4IDC.

    Raises:
        InputError: the file is damaged, has no sentences, names a picture outside its folder, or is not as published.
    """
    path = split_file(split)
    rows = read_rows(context, path, {"img_id": str, "sentences": list})
    if split == "test":
        context.expect(path, len(rows), TEST_ROWS)
    pairs: dict[str, list[str]] = {}
    for row in rows:
        if not _NAME.fullmatch(row["img_id"]):
            raise InputError(
                f"{context.folder / path}: img_id {row['img_id'][:60]!r} is no picture's name: fetch it again"
            )
        told = [sentence.strip() for sentence in row["sentences"] if isinstance(sentence, str)]
        pairs.setdefault(row["img_id"], []).extend(sentence for sentence in told if sentence)
    if not any(pairs.values()):
        raise InputError(f"{context.folder / path} has no sentences: fetch it again")
    return pairs


def picture_paths(context: PublishedContext, image: str) -> tuple[Path, Path]:
    """The two pictures of a pair, whether or not they are there."""
    folder = context.folder / IMAGES
    return folder / f"{image}.png", folder / f"{image}_2.png"
