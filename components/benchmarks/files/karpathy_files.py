"""Karpathy's test splits of COCO and Flickr30k, in the formats in which they go round."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from components.benchmarks.encoding.published_context import PublishedContext
from components.benchmarks.files.rows import checked, read_rows
from components.core.errors import InputError
from components.core.metrics import Indices


@dataclass(frozen=True)
class Captioned:
    """Images with all of their captions.

    Attributes:
        images: file names, sorted, so that every format gives the same gallery.
        captions: all captions, those of one image together and in the file's order.
        owners: row of each caption's image `[captions]`.
    """

    images: list[str]
    captions: list[str]
    owners: Indices


def read_captioned(
    context: PublishedContext, readers: dict[str, Callable[[PublishedContext, str], Captioned]]
) -> tuple[str, Captioned]:
    """The first of the files `readers` that is there, with its name.

    Raises:
        InputError: none is there, or the one that is there is damaged.
    """
    for path, reader in readers.items():
        if (context.folder / path).exists():
            return path, reader(context, path)
    raise InputError(f"{context.folder} has none of {', '.join(readers)}: put one of them there")


def read_coco_captions(context: PublishedContext, path: str) -> Captioned:
    """A file in COCO's caption format: `images` with id and file_name, `annotations` with image_id and caption.

    `coco_test_karpathy.json` of github.com/mehdidc/retrieval_annotations, which CLIP_benchmark reads, is one.

    Raises:
        InputError: the file is laid out otherwise, or a caption belongs to no image.
    """
    content = _object(context, path)
    images = checked(context, f"{path}: images", _list(context, path, content, "images"), {"id": int, "file_name": str})
    columns = {"image_id": int, "caption": str}
    captions = checked(context, f"{path}: annotations", _list(context, path, content, "annotations"), columns)
    names = {row["id"]: PurePosixPath(row["file_name"]).name for row in images}
    strays = [row for row in captions if row["image_id"] not in names]
    if strays:
        context.amiss(f"{path}: {len(strays)} captions belong to no image, first image_id {strays[0]['image_id']}")
    found: dict[str, list[str]] = {name: [] for name in names.values()}
    for row in captions:
        if row["image_id"] in names:
            found[names[row["image_id"]]].append(row["caption"])
    return _captioned(context, path, found)


def read_karpathy_split(context: PublishedContext, path: str) -> Captioned:
    """The test rows of a `dataset_*.json` by Karpathy: `images` with filename, split and sentences, each with raw.

    Raises:
        InputError: the file is laid out otherwise.
    """
    columns = {"filename": str, "split": str, "sentences": list}
    rows = checked(context, f"{path}: images", _list(context, path, _object(context, path), "images"), columns)
    found = {}
    for row in rows:
        if row["split"] == "test":
            sentences = checked(context, f"{path}: sentences of {row['filename']}", row["sentences"], {"raw": str})
            found[PurePosixPath(row["filename"]).name] = [sentence["raw"] for sentence in sentences]
    return _captioned(context, path, found)


def read_caption_lists(context: PublishedContext, path: str) -> Captioned:
    """A list of `{"image": "val2014/<name>.jpg", "caption": [...]}`: BLIP's and COCO-TP's `coco_karpathy_test.json`.

    Raises:
        InputError: the file is laid out otherwise; nlpaug from 1.1.11 on writes lists in place of captions, too.
    """
    found = {}
    for row in read_rows(context, path, {"image": str, "caption": list}):
        texts = checked(
            context, f"{path}: {row['image']}", [{"caption": one} for one in row["caption"]], {"caption": str}
        )
        found[PurePosixPath(row["image"]).name] = [text["caption"] for text in texts]
    return _captioned(context, path, found)


def read_flickr_lines(context: PublishedContext, path: str) -> Captioned:
    """`flickr30k_test_karpathy.txt` as CLIP_benchmark reads it: a title line, then `<name>.jpg,<caption>` in each line.

    Captions are not quoted and may hold commas, so only the first `.jpg,` separates.

    Raises:
        InputError: the file is no text, or a line has no separator.
    """
    try:
        lines = (context.folder / path).read_text("utf-8").splitlines()[1:]
    except UnicodeDecodeError as error:
        raise InputError(f"{context.folder / path} is damaged ({error}): fetch it again") from None
    found: dict[str, list[str]] = defaultdict(list)
    bad = []
    for number, line in enumerate(lines, start=2):
        name, separator, caption = line.strip().partition(".jpg,")
        if separator:
            found[f"{PurePosixPath(name).name}.jpg"].append(caption)
        elif line.strip():
            bad.append(number)
    if bad:
        context.amiss(f"{path}: {len(bad)} lines are not <name>.jpg,<caption>, first line {bad[0]}")
    return _captioned(context, path, found)


def _object(context: PublishedContext, path: str) -> dict[str, Any]:
    content = context.read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{context.folder / path} holds no JSON object: fetch it again")
    return content


def _list(context: PublishedContext, path: str, content: dict[str, Any], key: str) -> list[Any]:
    found = content.get(key)
    if not isinstance(found, list):
        raise InputError(f"{context.folder / path} has no list '{key}': fetch it again")
    return found


def _captioned(context: PublishedContext, path: str, found: dict[str, list[str]]) -> Captioned:
    silent = sorted(name for name, captions in found.items() if not captions)
    if silent:
        context.amiss(f"{path}: {len(silent)} images have no caption, first {silent[0]}")
    images = sorted(name for name, captions in found.items() if captions)
    if not images:
        raise InputError(f"{context.folder / path} has no captioned test image: fetch it again")
    captions = [caption for name in images for caption in found[name]]
    owners = np.repeat(np.arange(len(images)), [len(found[name]) for name in images])
    return Captioned(images, captions, owners.astype(np.int64))
