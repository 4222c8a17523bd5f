"""Shards of labelled images as CLIP_benchmark's webdataset_builder writes them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import webdataset
from PIL import Image

from components.core.tables.records import CLASS_DIFFERENCES

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def encoded(colour: Sequence[int]) -> bytes:
    """A WebP image of one colour, without loss."""
    stream = io.BytesIO()
    Image.new("RGB", (8, 8), (colour[0], colour[1], colour[2])).save(stream, "WEBP", lossless=True)
    return stream.getvalue()


def write_shards(
    folder: Path,
    samples: Sequence[tuple[Sequence[int], Any]],
    split: str = "test",
    names: Sequence[str] = tuple(COLOURS),
) -> None:
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
    CLASS_DIFFERENCES.write(
        path,
        {
            "id": classes, "other_id": others, "sample": [0] * len(rows),
            "class_name": classes, "other_class_name": others, "difference": texts,
        },
    )  # fmt: skip
