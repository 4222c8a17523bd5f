"""Pictures that an encoder embeds: those of a folder, or of webdataset shards on disk or in S3.

A folder is read with all its subfolders. Texts and further columns of a file such as `captions.tsv` become those of the
index. Pictures that cannot be decoded are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
from more_itertools import chunked

from components.benchmarks.scoring.encoding.context import EncoderUnderTest, ImageEncoder
from components.core.compute.metrics import Features, Indices
from components.core.pictures.folder import heic_note, picture_names, pictures_in, read_picture
from components.core.pictures.shards.listing import ShardFiles, find_shards, is_remote
from components.core.system.errors import InputError
from components.core.system.user_files import RefusedError
from components.core.tables.ahead import mapped
from components.data.checked_pictures import check_picture
from components.data.row_fields import RowFields
from components.data.row_files import IMAGES
from components.data.source import Sample, Unusable, UnusableError
from components.data.sources.folder import FILES
from components.data.sources.webdataset import read_shard, shards_in
from components.encoders.adapter.images import Preparation
from components.encoders.embeddings import require_finite
from components.index.rows import further_names
from components.index.sources.source import ImageBlock, ImageSource, Opened, dim_of, tower_of

_BLOCK, _BATCH = 256, 64
"""Pictures whose bytes are in memory, and those that the tower embeds together."""
_Further = Mapping[str, Mapping[str, str]]
"""A picture's name -> its further columns."""


def _is_folder(given: str) -> bool:
    folder = Path(given)
    return folder.is_dir() and (FILES.find(folder) is not None or next(picture_names(folder), None) is not None)


def _open_folder(given: str, encoder: EncoderUnderTest | None) -> Opened:
    embedding, tower = tower_of(encoder, f"it embeds the pictures in {given}")
    folder = Path(given)
    captions, further = _listed(folder)
    found = pictures_in(folder)
    if not captions:
        found.require()
    names = sorted({*captions, *found.names})

    def blocks() -> Iterator[ImageBlock]:
        lost = [*found.refused, *([heic_note(found.heic)] if found.heic else [])]
        samples = chain(_read_folder(folder, names, captions), map(Unusable, lost))
        return _blocks(given, samples, embedding, further)

    return Opened(tower, embedding.name, dim_of(embedding), len(names), blocks, tuple(found.notes), prepares=True)


def _read_folder(folder: Path, names: Iterable[str], captions: dict[str, str]) -> Iterator[Sample | Unusable]:
    for name in names:
        path = folder / name
        try:
            raw = read_picture(path, folder)
        except RefusedError as error:
            yield Unusable(str(error))
            continue
        yield Sample.of(raw, str(path), str(path), captions=(captions.get(name, ""),), name=name)


def _listed(folder: Path) -> tuple[dict[str, str], _Further]:
    """The first line of each picture that a file lists: its caption, and its further columns as texts."""
    captions, further = dict[str, str](), dict[str, dict[str, str]]()
    fields, files = RowFields(), FILES.those(folder, "") if FILES.find(folder) is not None else []
    for _, row in chain.from_iterable(FILES.rows(file, fields.required()) for file in files):
        texts = {name: "" if value is None else str(value).strip() for name, value in row.items()}
        if other := next((name for name in IMAGES[1:] if texts.get(name) == texts.get("image")), None):
            texts.pop(other)
        name = os.path.normpath(texts.pop("image", ""))
        captions.setdefault(name, texts.pop(fields.caption_in(texts) or "", ""))
        further.setdefault(name, texts)
    return captions, further


FOLDER = ImageSource(_is_folder, _open_folder)


def _are_shards(given: str) -> bool:
    return is_remote(given) or given.endswith(".tar") or "{" in given or bool(shards_in(Path(given)))


def _open_shards(given: str, encoder: EncoderUnderTest | None) -> Opened:
    embedding, tower = tower_of(encoder, f"it embeds the pictures in {given}")
    shards = find_shards(shards_in(Path(given)) or given, ShardFiles())
    total = shards.samples() if len(shards.sizes) == len(shards.urls) else None

    def blocks() -> Iterator[ImageBlock]:
        samples = (read_shard(url, shards.sizes.get(url)) for url in shards.urls)
        return _blocks(given, chain.from_iterable(samples), embedding, {})

    return Opened(tower, embedding.name, dim_of(embedding), total, blocks, prepares=True)


SHARDS = ImageSource(_are_shards, _open_shards)


def _blocks(
    where: str, samples: Iterable[Sample | Unusable], encoder: EncoderUnderTest, further: _Further
) -> Iterator[ImageBlock]:
    """Blocks of the usable pictures, all with the same columns, and of the reasons why others cannot be used."""
    tower = _Tower.of(encoder)
    columns = further_names(list(dict.fromkeys(name for texts in further.values() for name in texts)))
    with closing(mapped(_fault, samples, per_thread=32)) as checked:
        for block in chunked(checked, _BLOCK):
            usable = [sample for sample, fault in block if fault is None and isinstance(sample, Sample)]
            texts = {
                column: [further.get(sample.name, {}).get(name) or None for sample in usable]
                for name, column in columns.items()
            }
            unusable = tuple(fault for _, fault in block if fault is not None)
            yield ImageBlock(where, _rows(usable, texts), partial(tower.embed, usable), unusable)


def _fault(sample: Sample | Unusable) -> str | None:
    if isinstance(sample, Unusable):
        return sample.reason
    try:
        check_picture(sample.raw or b"", sample.place)
    except UnusableError as error:
        return str(error)
    return None


def _rows(samples: list[Sample], texts: Mapping[str, list[str | None]]) -> pa.Table:
    columns: dict[str, object] = {
        "image_id": pa.array([sample.image_id for sample in samples], pa.string()),
        "caption": pa.array([next(iter(sample.captions), "") or None for sample in samples], pa.string()),
        "name": [sample.name for sample in samples],
        "file": [sample.file for sample in samples],
        "position": pa.array([sample.position for sample in samples], pa.int64()),
        "size": [sample.size for sample in samples],
    }
    return pa.table(columns | {name: pa.array(column, pa.string()) for name, column in texts.items()})


@dataclass(frozen=True)
class _Tower:
    encoder: ImageEncoder
    name: str
    preparation: Preparation

    @staticmethod
    def of(encoder: EncoderUnderTest) -> _Tower:
        if encoder.preparation is None or not isinstance(encoder.encoder, ImageEncoder):
            raise InputError(f"--encoder '{encoder.name}' has no image tower: give one that embeds images")
        return _Tower(encoder.encoder, encoder.name, encoder.preparation)

    def embed(self, samples: list[Sample], rows: Indices) -> Features:
        """Unit vectors `[rows, dim]` of some of the pictures."""
        vectors = []
        for batch in chunked([samples[row] for row in rows], _BATCH):
            places = [sample.place for sample in batch]
            pixels = self.preparation.decode([sample.raw or b"" for sample in batch], places)
            features = self.encoder.embed_pixels(pixels)
            require_finite(features, self.name, "picture", places)
            vectors.append(features)
        return np.concatenate(vectors)
