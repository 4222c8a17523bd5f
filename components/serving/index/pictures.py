"""Pictures that an encoder embeds: those of a folder, or of webdataset shards on disk or in S3.

A folder is read with all its subfolders, its texts as source `folder` reads them (`components.data.sources.folder`).
Further columns of the file that lists the pictures become those of the index.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from more_itertools import chunked

from components.core.compute.metrics import Features, Indices
from components.core.pictures.folder import heic_note, picture_names, pictures_in, read_picture
from components.core.pictures.shard_files import ShardFiles, find_shards, is_remote
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.system.user_files import RefusedError
from components.core.tables.ahead import mapped
from components.data.checked_pictures import check_picture
from components.data.row_fields import Row, RowFields, RowTexts
from components.data.row_files import IMAGES, find_sidecar, sidecar_rows
from components.data.source import Sample, Unusable, UnusableError
from components.data.sources.folder import FILES, listed_rows, place_of_pictures
from components.data.sources.webdataset import read_shard, shards_in
from components.encoders.embeddings import require_finite
from components.encoders.under_test import EncoderUnderTest, ImageEncoder
from components.serving.index.building import ImageBlock, ImageSource, Opened
from components.serving.index.facts import OWN, further_name

_BLOCK, _BATCH = 256, 64
"""Pictures whose bytes are in memory, and those that the tower embeds together."""
_Listed = dict[str, tuple[RowTexts, dict[str, str]]]
"""A picture's name -> its texts and its further columns."""


def _is_folder(given: str) -> bool:
    folder = Path(given)
    return folder.is_dir() and (FILES.find(folder) is not None or next(picture_names(folder), None) is not None)


def _open_folder(given: str, encoder: EncoderUnderTest | None, settings: Prepare) -> Opened:
    embedding, tower, dim = tower_of(encoder, f"it embeds the pictures in {given}")
    folder, fields, most = Path(given), fields_of(settings), settings.picture_bound
    found = pictures_in(folder, most)
    listed, faults = _listed(folder, found.names, fields, settings)
    if not listed:
        found.require()
    names = sorted({*listed, *found.names})

    def samples() -> Iterator[Sample | Unusable]:
        for name in names:
            path, (texts, _) = folder / name, listed.get(name, (RowTexts((), "", ""), {}))
            try:
                raw = read_picture(path, folder, most)
            except RefusedError as error:
                yield Unusable(str(error))
                continue
            yield Sample.of(raw, str(path), str(path), captions=texts.captions, name=name, item=texts.item)
        yield from map(Unusable, [*faults, *found.refused, *([heic_note(found.heic)] if found.heic else [])])

    def blocks() -> Iterator[ImageBlock]:
        return _blocks(given, samples(), embedding, fields, {name: further for name, (_, further) in listed.items()})

    return Opened(tower, embedding.name, dim, len(names), blocks, tuple(found.notes))


def _listed(folder: Path, names: list[str], fields: RowFields, settings: Prepare) -> tuple[_Listed, list[str]]:
    """The first row of each picture that a file lists, or the text beside it; and why rows cannot be used."""
    rows, place = list[Row](), folder
    if FILES.find(folder) is not None:
        rows = list(chain.from_iterable(of_file for _, of_file in listed_rows(folder, fields, settings)))
        place = place_of_pictures(folder, [str(row.get("image")) for _, row in rows[:1]])
    elif find_sidecar(folder) is not None:
        rows = list(sidecar_rows(folder, names))
    listed, faults = _Listed(), list[str]()
    for where, row in rows:
        if isinstance(image := row.get("image"), str) and image:
            try:
                texts = fields.read(where, row)
            except UnusableError as fault:
                faults.append(f"{folder}: the texts of {where} ({image}): {fault}")
                continue
            listed.setdefault(os.path.relpath(place / image, folder), (texts, _further(row, image, fields)))
    return listed, faults


def _further(row: Mapping[str, Any], image: str, fields: RowFields) -> dict[str, str]:
    """The columns of a row besides those that name the picture and hold its caption, as texts."""
    caption = fields.caption_in(row) if fields.template is None else None
    kept = {name: value for name, value in row.items() if name not in ("image", caption)}
    return {
        name: str(value).strip()
        for name, value in kept.items()
        if isinstance(value, str | int | float) and not (value == image and name in IMAGES)
    }


FOLDER = ImageSource(_is_folder, _open_folder)


def _are_shards(given: str) -> bool:
    return is_remote(given) or given.endswith(".tar") or "{" in given or bool(shards_in(Path(given)))


def _open_shards(given: str, encoder: EncoderUnderTest | None, settings: Prepare) -> Opened:
    embedding, tower, dim = tower_of(encoder, f"it embeds the pictures in {given}")
    shards, fields = find_shards(shards_in(Path(given)) or given, ShardFiles()), fields_of(settings)
    total = shards.samples() if len(shards.sizes) == len(shards.urls) else None

    def blocks() -> Iterator[ImageBlock]:
        samples = (read_shard(url, shards.sizes.get(url), "", fields) for url in shards.urls)
        return _blocks(given, chain.from_iterable(samples), embedding, fields, {})

    return Opened(tower, embedding.name, dim, total, blocks)


SHARDS = ImageSource(_are_shards, _open_shards)


def _blocks(
    where: str, samples: Iterable[Sample | Unusable], encoder: EncoderUnderTest, fields: RowFields,
    further: Mapping[str, Mapping[str, str]],
) -> Iterator[ImageBlock]:  # fmt: skip
    """Blocks of the usable pictures, all with the same columns, and of the reasons why others cannot be used."""
    names = dict.fromkeys(further_name(name) for texts in further.values() for name in texts)
    more = [*names, *(["item"] if fields.item is not None else [])]
    schema = pa.schema([*OWN, *(pa.field(name, pa.string()) for name in more)])
    with closing(mapped(_fault, samples, per_thread=32)) as checked:
        for block in chunked(checked, _BLOCK):
            usable = [sample for sample, fault in block if fault is None and isinstance(sample, Sample)]
            table = pa.Table.from_pylist([_row(one, further.get(one.name, {})) for one in usable], schema)
            unusable = tuple(fault for _, fault in block if fault is not None)
            yield ImageBlock(where, table, partial(_embedded, encoder, usable), unusable)


def _row(sample: Sample, further: Mapping[str, str]) -> dict[str, str | int | None]:
    row = {name: getattr(sample, name) for name in ("image_id", "name", "file", "position", "size")}
    row |= {further_name(name): text or None for name, text in further.items()}
    return row | {"caption": "".join(sample.captions) or None} | ({"item": sample.item} if sample.item else {})


def _fault(sample: Sample | Unusable) -> str | None:
    if isinstance(sample, Unusable):
        return sample.reason
    try:
        check_picture(sample.raw or b"", sample.place)
    except UnusableError as error:
        return str(error)
    return None


def _embedded(encoder: EncoderUnderTest, samples: list[Sample], rows: Indices) -> Features:
    """Unit vectors `[rows, dim]` of some of the pictures."""
    assert encoder.preparation is not None
    assert isinstance(encoder.encoder, ImageEncoder)
    vectors = []
    for batch in chunked([samples[row] for row in rows], _BATCH):
        places = [sample.place for sample in batch]
        pixels = encoder.preparation.decode([sample.raw or b"" for sample in batch], places)
        features = encoder.encoder.embed_pixels(pixels)
        require_finite(features, encoder.name, "picture", places)
        vectors.append(features)
    return np.concatenate(vectors)


def fields_of(settings: Prepare) -> RowFields:
    """The fields of rows that may lack a caption, and may have any split."""
    return replace(RowFields.of(settings), is_lenient=True)


def tower_of(encoder: EncoderUnderTest | None, why: str) -> tuple[EncoderUnderTest, str, int]:
    """The encoder, the hash of its image tower, and the length of its vectors."""
    if encoder is None:
        raise InputError(f"--encoder is missing: {why}")
    if encoder.image_tower_sha256 is None:
        raise InputError(f"--encoder '{encoder.name}' has no image tower: give one that embeds images")
    return encoder, encoder.image_tower_sha256, encoder.encoder.embed_texts(["a picture"]).shape[1]
