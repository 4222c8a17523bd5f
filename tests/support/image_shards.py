"""Shards of labelled images as CLIP_benchmark's webdataset_builder writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import webdataset
from PIL import Image

from components.core.tables.records import CLASS_DIFFERENCES
from tests.support import shard_making

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def encoded(colour: Sequence[int]) -> bytes:
    return shard_making.encoded(Image.new("RGB", (8, 8), tuple(colour)), "WEBP", lossless=True)


Samples = Sequence[tuple[Sequence[int], Any]]


def write_shards(folder: Path, samples: Samples, split: str = "test", names: Sequence[str] = tuple(COLOURS)) -> None:
    """Two samples of a colour and a class to a shard, class names and two templates."""
    (folder / split).mkdir(parents=True)
    sink = webdataset.ShardWriter(str(folder / split / "%d.tar"), maxcount=2, verbose=0)
    for index, (colour, label) in enumerate(samples):
        sink.write({"__key__": f"s{index:07d}", "webp": encoded(colour), "cls": label})
    shards = sink.shard
    sink.close()
    (folder / split / "nshards.txt").write_text(f"{shards}\n")
    (folder / "classnames.txt").write_text("\n".join(names) + "\n")
    (folder / "zeroshot_classification_templates.txt").write_text("a photo of a {c}.\nthe {c}\n")


def write_differences(path: Path, rows: list[tuple[str, str, str]]) -> None:
    """Write a table of class differences: class, other class and text of each row."""
    classes, others, texts = (list(column) for column in zip(*rows, strict=True))
    columns = {"id": classes, "other_id": others, "sample": [0] * len(rows), "difference": texts}
    CLASS_DIFFERENCES.write(path, {**columns, "class_name": classes, "other_class_name": others})
