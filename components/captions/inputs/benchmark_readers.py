"""Readers of benchmark tables: names of classes, classes two at a time, and queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from components.captions.inputs.pairing import paired
from components.captions.inputs.readers import accepted
from components.captions.inputs.sources import Accepts, Ask
from components.captions.request import Source
from components.core.files import content_hash
from components.core.records import CAPTION_QUERIES, LABELS


def read_classes(path: Path, accepts: Accepts, ask: Ask) -> Iterator[Source]:
    """The distinct labels of a `LABELS` table, sorted, as input `class_name`; a class's id is its name's hash."""
    names = {name for block in LABELS.blocks(path, ["label"]) for name in block.column("label").to_pylist()}
    sources = (Source(content_hash(name), 0, {"class_name": name}) for name in sorted(names))
    yield from islice(accepted(sources, accepts, ask.skipped), ask.limit)


def read_class_pairs(path: Path, accepts: Accepts, ask: Ask) -> Iterator[Source]:
    """Two of the classes of `read_classes` at a time, see `paired`: `class_name` and `other_class_name`."""
    yield from paired(list(read_classes(path, accepts, ask)), ask.pairs, ask.seed)


def read_queries(path: Path, accepts: Accepts, ask: Ask) -> Iterator[Source]:
    """The first plain texts of a `CAPTION_QUERIES` table, as input `query`; several of an image are its samples."""
    return islice(accepted(_queries(path), accepts, ask.skipped), ask.limit)


def _queries(path: Path) -> Iterator[Source]:
    told: Counter[str] = Counter()
    for block in CAPTION_QUERIES.blocks(path):
        for row in block.to_pylist():
            if row["register"] == "plain":
                yield Source(row["image_id"], told[row["image_id"]], {"query": row["text"]})
                told[row["image_id"]] += 1
