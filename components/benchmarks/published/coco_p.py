"""COCO-P and COCO-PE: does a paraphrase find the images that the query finds? (Cheng et al. 2024, section 3)

4,155 pairs by GPT-3 that people judged to mean the same (score 5 of 5). The galleries are COCO's 5,000 validation
images and, for COCO-PE, the 123,403 unlabeled ones as well; the paper does not name the release, but only that of 2017
has unlabeled images of that number. It reports AO@10 and JS@10. Neither the pairs' file nor code was found in public;
for the format that is read here see `read_pairs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from components.benchmarks.benchmark import Benchmark, Need, Tested
from components.benchmarks.encoding.published_context import PublishedContext, checked, read_rows
from components.benchmarks.protocols.retrieval import TIES, paraphrase_agreement
from components.benchmarks.scores import Scores, grouped, metrics
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
            features.append(context.image_files(folder, (path.name for path in paths)))
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


SMALL, LARGE = "coco_p", "coco_pe"
REPORTED = 10
"""The depth that the paper reports."""


def score(name: str, folders: Sequence[str], context: PublishedContext) -> Scores:
    """AO@k and JS@k between the lists of query and paraphrase, and recall@k of both."""
    pairs = read_pairs(context)
    names, images = gallery(context, folders)
    gold = gold_rows(pairs, names)
    depths = sorted({*context.ks, REPORTED})
    found = paraphrase_agreement(context.texts(pairs.queries), context.texts(pairs.paraphrases), images, gold, depths)
    return grouped(name, found, gold)


def tested(context: PublishedContext) -> Tested:
    """Queries and paraphrases, and all images of the larger gallery that are there."""
    pairs = read_pairs(context)
    folders = [context.folder / name for name in IMAGES if (context.folder / name).is_dir()]
    return Tested([*pairs.queries, *pairs.paraphrases], [file for folder in folders for file in picture_files(folder)])


RANKED = metrics(TIES, "ao_at_k", "js_at_k", "query_recall_at_k", "paraphrase_recall_at_k")
PAIRS_NEED = Need(FILE, f"{PAIRS:,} pairs in this project's format", "1 MB", "not stated", "the authors of COCO-P")
VALIDATION_NEED, _UNLABELED_NEED = (
    Need(folder, f"COCO {folder}, {IMAGES[folder]:,} images", size, "Flickr terms", "cocodataset.org")
    for folder, size in ((VALIDATION, "1 GB"), (UNLABELED, "19 GB"))
)


def _benchmark(name: str, folders: Sequence[str], needs: tuple[Need, ...]) -> Benchmark[PublishedContext]:
    images = sum(IMAGES[folder] for folder in folders)
    return Benchmark(
        name=name,
        version=2,
        protocol=f"the paper's text: one paraphrase per caption, gallery of {images:,} images",
        citation="Adapting dual-encoder vision-language models for paraphrased retrieval (arXiv 2405.03190)",
        folder="coco_p",
        needs=needs,
        metrics=RANKED,
        score=partial(score, name, folders),
        tested=tested if name == SMALL else None,
    )


BENCHMARKS = (
    _benchmark(SMALL, (VALIDATION,), (PAIRS_NEED, VALIDATION_NEED)),
    _benchmark(LARGE, (VALIDATION, UNLABELED), (PAIRS_NEED, VALIDATION_NEED, _UNLABELED_NEED)),
)
