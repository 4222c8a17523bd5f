"""COCO-P's pairs of captions and their galleries of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from components.benchmarks.encoding.picture_source import picture_file
from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.rows import checked, read_rows
from components.core.errors import InputError
from components.core.metrics import Features, Indices

FILE, VALIDATION, UNLABELED = "coco_p.json", "val2017", "unlabeled2017"
PAIRS = 4_155
IMAGES = {VALIDATION: 5_000, UNLABELED: 123_403}
"""Folder -> number of images that COCO publishes in it."""


@dataclass(frozen=True)
class Pairs:
    """Queries with their paraphrases, row by row.

    Attributes:
        queries, paraphrases: texts `[pairs]`.
        images: file names of the images that the queries describe `[pairs]`.
    """

    queries: list[str]
    paraphrases: list[str]
    images: list[str]


def read_pairs(context: PublishedContext) -> Pairs:
    """The rows of `coco_p.json`, which is this project's format, for the authors' file is not public.

    A JSON list of objects: `image`, a file name in `val2017/`, or `image_id`, COCO's number; `query` or `caption`;
    `paraphrase`.

    Raises:
        InputError: rows are laid out otherwise, or are not the published number, and may not be left out.
    """
    rows = [_renamed(row) for row in read_rows(context, FILE, {})]
    good = checked(context, FILE, rows, {"image": str, "query": str, "paraphrase": str})
    context.expect(FILE, len(good), PAIRS)
    if not good:
        raise InputError(f"{context.folder / FILE} has no pair: fill it with image, query and paraphrase in each row")
    return Pairs(*([row[name] for row in good] for name in ("query", "paraphrase", "image")))


def picture_files(folder: Path) -> list[Path]:
    """The images that lie in `folder`, sorted by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in {".jpg", ".png"})


def gallery(context: PublishedContext, folders: Sequence[str]) -> tuple[list[str], Features]:
    """File names and unit features `[images, dim]` of all images of `folders`, in their order, sorted by name in each.

    Each folder's features are cached by themselves, so the larger gallery costs only its own images.

    Raises:
        InputError: a folder has not the published number of images, or an image cannot be decoded.
    """
    names: list[str] = []
    features = []
    for folder in folders:
        paths = picture_files(context.folder / folder)
        context.expect(f"{folder}: images", len(paths), IMAGES[folder])
        if paths:
            names += [path.name for path in paths]
            features.append(context.images([picture_file(path) for path in paths]))
    if not features:
        raise InputError(f"{context.folder} has no image in {' or '.join(folders)}: put COCO's images there")
    return names, np.concatenate(features)


def gold_rows(pairs: Pairs, names: Sequence[str]) -> Indices:
    """Gallery row of each pair's image `[pairs]`.

    Raises:
        InputError: an image is not in the gallery.
    """
    rows = {name: row for row, name in enumerate(names)}
    for row, image in enumerate(pairs.images):
        if image not in rows:
            raise InputError(f"{FILE}: row {row} names image '{image}', which the gallery lacks: add it or fix the row")
    return np.array([rows[image] for image in pairs.images], dtype=np.int64)


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    image = row.get("image")
    if isinstance(row.get("image_id"), int):
        image = f"{row['image_id']:012d}.jpg"
    return {
        "image": PurePosixPath(image).name if isinstance(image, str) else None,
        "query": row.get("query", row.get("caption")),
        "paraphrase": row.get("paraphrase"),
    }
