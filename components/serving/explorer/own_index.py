"""The explorer's own index of pictures without an index; it is rebuilt when the pictures change."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

import numpy as np

from components.core.compute.metrics import Features, Indices
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.tables import formats
from components.core.tables.files import content_hash, file_hash
from components.encoders.embeddings import MANIFEST
from components.encoders.under_test import EncoderUnderTest
from components.serving.index.building import ImageBlock, Opened, build
from components.serving.index.image_index import EXACT, FACTS, ImageIndex
from components.serving.index.sources import find_source, source_of


def own_index(place: str, encoder: EncoderUnderTest, cache: Path, settings: Prepare) -> ImageIndex:
    """The index of the pictures in `place` (see `source_of`), in its own folder of `cache`.

    Vectors of pictures in the previous index are reused.
    """
    source = find_source(source_of(place))
    folder = cache / content_hash(str(Path(place).absolute()))[:16]
    options = f"{formats.INDEX} {settings.text} {settings.item} {settings.image}"
    kept = folder / content_hash(encoder.image_tower_sha256 or "", _state(place), options)[:16]
    if (index := _opened(kept)) is None:
        opened = source.open(place, encoder, settings)
        for before in map(_opened, _indexes(folder)):
            if before is not None:
                opened = _reusing(opened, before)
        build(kept, opened, EXACT, replace=True)
        index = ImageIndex.open(kept)
    for other in _indexes(folder):
        if other != kept:
            shutil.rmtree(other, ignore_errors=True)
    return index


def _state(place: str) -> str:
    """A text that changes with the files in `place`; always a new one if they are not on this disk."""
    path = Path(place)
    manifest = path / "embeddings" / MANIFEST
    if manifest.is_file():
        return file_hash(manifest)
    files = sorted(path.rglob("*")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        return token_hex(16)
    facts = ((str(file), file.stat()) for file in files if file.is_file())
    return content_hash(*(f"{name}|{stat.st_size}|{stat.st_mtime_ns}" for name, stat in facts))


def _indexes(folder: Path) -> list[Path]:
    # Indexes that another process is building have hidden names.
    return [path.parent for path in folder.glob(f"[!.]*/{FACTS}")]


def _opened(folder: Path) -> ImageIndex | None:
    """The index in a folder; None if it is missing or damaged."""
    try:
        return ImageIndex.open(folder)
    except InputError:
        return None


def _reusing(opened: Opened, before: ImageIndex) -> Opened:
    """The source, with vectors of the previous index for pictures that it contains."""
    if before.facts.image_tower_sha256 != opened.image_tower_sha256:
        return opened
    known = {image: row for row, image in enumerate(before.column("image_id").to_pylist())}

    def reusing(block: ImageBlock) -> ImageBlock:
        ids = block.rows["image_id"].to_pylist()

        def vectors(rows: Indices) -> Features:
            places = np.array([known.get(ids[row], -1) for row in rows], np.int64)
            found = np.empty((len(rows), opened.dim), np.float32)
            found[places >= 0] = before.vector(places[places >= 0])
            if (places < 0).any():
                found[places < 0] = block.vectors(rows[places < 0])
            return found

        return replace(block, vectors=vectors)

    def blocks() -> Iterator[ImageBlock]:
        return map(reusing, opened.blocks())

    return replace(opened, blocks=blocks)
