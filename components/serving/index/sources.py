"""Sources of images: pictures that an encoder embeds, and vectors of stage `embed`, of another index or of other tools.

A folder is read with all its subfolders, its texts as source `folder` reads them (`components.data.sources.folder`).
Further columns of the file that lists the pictures become those of the index. Vectors of other tools, such as
clip-retrieval's, have no hash of their tower: `--encoder` names their encoder.
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
import pyarrow.compute as pc
from more_itertools import chunked

from components.core.compute.metrics import Features, Indices
from components.core.pictures.embedding_files import (
    COLUMNS,
    EmbeddingFile,
    embedding_files,
    name_column,
    read_embeddings,
)
from components.core.pictures.folder import heic_note, picture_names, pictures_in, read_picture
from components.core.pictures.shard_files import ShardFiles, find_shards, is_remote
from components.core.settings import PARAMS, Counts, Prepare, load_settings
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.system.user_files import RefusedError
from components.core.tables import formats
from components.core.tables.ahead import mapped
from components.core.tables.files import image_id
from components.core.tables.formats import read_record
from components.core.tables.records import PAIRS, SPLITS
from components.data.checked_pictures import check_picture
from components.data.row_fields import Row, RowFields, RowTexts
from components.data.row_files import IMAGES, find_sidecar, sidecar_rows
from components.data.source import Sample, Unusable, UnusableError
from components.data.sources.folder import FILES, listed_rows, place_of_pictures
from components.data.sources.webdataset import read_shard, shards_in
from components.encoders.embeddings import MANIFEST, ImageEmbeddings, Manifest, require_finite
from components.encoders.under_test import EncoderUnderTest, ImageEncoder
from components.serving.index.building import ImageBlock, ImageSource, Opened
from components.serving.index.image_index import FACTS, OWN, ImageIndex, further_name, stored_type

_BLOCK, _BATCH, _ROWS = 256, 64, 8192
"""Pictures whose bytes are in memory, those that the tower embeds together, and rows of given vectors in memory."""
_Listed = dict[str, tuple[RowTexts, dict[str, str]]]
"""A picture's name -> its texts and its further columns."""


def _is_folder(given: str) -> bool:
    folder = Path(given)
    return folder.is_dir() and (FILES.find(folder) is not None or next(picture_names(folder), None) is not None)


def _open_folder(given: str, encoder: EncoderUnderTest | None, settings: Prepare) -> Opened:
    embedding, tower, dim = _tower_of(encoder, f"it embeds the pictures in {given}")
    folder, fields, most = Path(given), _fields_of(settings), settings.picture_bound
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


def _open_shards(given: str, encoder: EncoderUnderTest | None, settings: Prepare) -> Opened:
    embedding, tower, dim = _tower_of(encoder, f"it embeds the pictures in {given}")
    shards, fields = find_shards(shards_in(Path(given)) or given, ShardFiles()), _fields_of(settings)
    total = shards.samples() if len(shards.sizes) == len(shards.urls) else None

    def blocks() -> Iterator[ImageBlock]:
        samples = (read_shard(url, shards.sizes.get(url), "", fields) for url in shards.urls)
        return _blocks(given, chain.from_iterable(samples), embedding, fields, {})

    return Opened(tower, embedding.name, dim, total, blocks)


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


def _fields_of(settings: Prepare) -> RowFields:
    """The fields of rows that may lack a caption, and may have any split."""
    return replace(RowFields.of(settings), is_lenient=True)


def _tower_of(encoder: EncoderUnderTest | None, why: str) -> tuple[EncoderUnderTest, str, int]:
    """The encoder, the hash of its image tower, and the length of its vectors."""
    if encoder is None:
        raise InputError(f"--encoder is missing: {why}")
    if encoder.image_tower_sha256 is None:
        raise InputError(f"--encoder '{encoder.name}' has no image tower: give one that embeds images")
    return encoder, encoder.image_tower_sha256, encoder.encoder.embed_texts(["a picture"]).shape[1]


def _embedding_files(given: str) -> list[EmbeddingFile]:
    path = Path(given)
    if path.is_dir():
        return embedding_files(path)
    return [file for file in embedding_files(path.parent) if file.embeddings == path]


def _open_embeddings(given: str, encoder: EncoderUnderTest | None, settings: Prepare) -> Opened:
    computing, tower, dim = _tower_of(encoder, f"the files in {given} do not name the encoder that computed them")
    files, total, fields = _embedding_files(given), 0, _fields_of(settings)
    if not files:
        raise InputError(f"--from {given} has no embeddings (.npy, or Parquet with a column of vectors): correct it")
    for file in files:
        rows, width = file.shape()
        if rows and width != dim:
            raise InputError(
                f"{file.embeddings} has vectors of {width} numbers, those of --encoder '{computing.name}' have {dim}: "
                "give the encoder that computed them"
            )
        total += rows

    def blocks() -> Iterator[ImageBlock]:
        for file in files:
            rows, _ = file.shape()
            for first in range(0, rows, _ROWS):
                yield _embedding_block(file, first, min(_ROWS, rows - first), dim, fields)

    return Opened(tower, computing.name, dim, total, blocks)


def _embedding_block(file: EmbeddingFile, first: int, count: int, dim: int, fields: RowFields) -> ImageBlock:
    given = np.ascontiguousarray(read_embeddings(file.embeddings, first, count))
    if given.shape[1] != dim:
        raise InputError(f"{file.embeddings} has rows of different width: write it again")
    norms = np.linalg.norm(given.astype(np.float32), axis=1)

    def vectors(rows: Indices) -> Features:
        # `components.serving.index.building` leaves out vectors that are zero or not finite.
        with np.errstate(invalid="ignore"):
            unit: Features = np.asarray(given[rows], np.float32) / norms[rows, None]
        return unit

    return ImageBlock(str(file.embeddings), _embedding_rows(file, first, given, fields), vectors)


def _embedding_rows(file: EmbeddingFile, first: int, given: Features, fields: RowFields) -> pa.Table:
    rows: dict[str, object] = {
        "image_id": pa.array([image_id(row.tobytes()) for row in given], pa.string()),
        "name": [f"{file.embeddings.name}:{row}" for row in range(first, first + len(given))],
    }
    if not file.captions.is_file():
        return pa.table(rows)
    table = file.columns(first, len(given), lambda column: column.name not in COLUMNS)
    fields.columns(file.captions, table.column_names)
    texts = [fields.read(str(file.captions), row) for row in table.to_pylist()]
    rows["caption"] = pa.array([next(iter(one.captions), None) for one in texts], pa.string())
    if fields.item is not None:
        rows["item"] = pa.array([one.item or None for one in texts], pa.string())
    if name := fields.image or name_column(table.column_names):
        rows["name"] = table[name].cast(pa.string())
    caption = fields.caption_in(table.column_names) if fields.template is None else None
    further = [one.name for one in table.schema if one.name != caption and stored_type(one.type) is not None]
    return pa.table({further_name(name): table[name] for name in further} | rows)


def _open_index(given: str, encoder: EncoderUnderTest | None, _settings: Prepare) -> Opened:
    index = ImageIndex.open(Path(given))
    if encoder is not None:
        index.accept(encoder)

    def blocks() -> Iterator[ImageBlock]:
        for rows, vectors in index.chunks():
            yield ImageBlock(given, rows, vectors.__getitem__)

    return Opened(index.facts.image_tower_sha256, index.facts.encoder, index.facts.dim, len(index), blocks)


def _project_folders(given: str) -> tuple[Path, Path]:
    return Path(given) / "pairs", Path(given) / "embeddings"


def _open_project(given: str, encoder: EncoderUnderTest | None, _settings: Prepare) -> Opened:
    pairs, embeddings = _project_folders(given)
    manifest = read_record(Manifest, embeddings / MANIFEST, "run `dvc repro embed`", newest=formats.EMBEDDINGS)
    total = sum(split.rows for split in manifest.splits.values())
    tower = manifest.image_tower_sha256
    if encoder is not None and encoder.image_tower_sha256 != tower:
        raise InputError(
            f"{embeddings} was made by image tower {tower[:12]}, --encoder '{encoder.name}' has "
            f"{(encoder.image_tower_sha256 or 'none')[:12]}: give an encoder of this project, or run `dvc repro embed`"
        )

    def blocks() -> Iterator[ImageBlock]:
        for split in SPLITS:
            path, first = pairs / f"{split}.parquet", 0
            features = ImageEmbeddings.open(embeddings, split, path).features
            for table in PAIRS.blocks(path, ["image_id", "caption", "image", "file", "position", "size"], _ROWS):
                part = features[first : first + table.num_rows]
                yield ImageBlock(str(path), _project_rows(path, split, table, first), part.__getitem__)
                first += table.num_rows

    return Opened(tower, encoder.name if encoder is not None else "base", manifest.embed_dim, total, blocks)


def _project_rows(path: Path, split: str, table: pa.Table, first: int) -> pa.Table:
    """Rows of an index; a picture that is stored in the table of pairs itself is located by its row there."""
    here = pc.is_valid(table["image"])
    numbers = pa.array(np.arange(first, first + table.num_rows))
    file = pc.if_else(here, pa.scalar(str(path)), table["file"])
    size = pc.if_else(here, pc.cast(pc.binary_length(table["image"]), pa.int64()), table["size"])
    position = pc.if_else(here, numbers, table["position"])
    is_file = pc.and_(pc.is_null(position), pc.is_valid(size))
    # Without a file of its own, a picture is named by its id.
    names = pc.if_else(is_file, pc.replace_substring_regex(file, r".*[/\\]", ""), table["image_id"])
    return pa.table({
        "image_id": table["image_id"], "caption": table["caption"], "name": names, "file": file,
        "position": position, "size": size, "split": pa.array([split] * table.num_rows, pa.string()),
    })  # fmt: skip


SOURCES = {
    "embeddings": ImageSource(lambda given: bool(_embedding_files(given)), _open_embeddings),
    "folder": ImageSource(_is_folder, _open_folder),
    "index": ImageSource(lambda given: (Path(given) / FACTS).is_file(), _open_index),
    "project": ImageSource(lambda given: all(folder.is_dir() for folder in _project_folders(given)), _open_project),
    "shards": ImageSource(
        lambda given: is_remote(given) or given.endswith(".tar") or "{" in given or bool(shards_in(Path(given))),
        _open_shards,
    ),
}


def find_source(name: str) -> ImageSource:
    """The source of this name."""
    return SOURCES[choose(list(SOURCES), name, "--source")]


def source_of(given: str) -> str:
    """The name of the source that fits a path or pattern."""
    fitting = [name for name, source in SOURCES.items() if source.fits(given)]
    if not fitting:
        raise InputError(
            f"--from {given} is not a project's data folder, a folder of pictures, shards, embeddings or an index: "
            "correct the path"
        )
    # An index has vectors, and any folder may have pictures in it.
    fitting = ["index"] if "index" in fitting else [name for name in fitting if name != "folder"] or fitting
    if len(fitting) > 1:
        raise InputError(f"--from {given} may be {' or '.join(fitting)}: choose one with --source")
    return fitting[0]


def reading(fields: Mapping[str, str | None]) -> Prepare:
    """The bounds of params.yaml, or their defaults outside a project, and the fields `text`, `item` and `image`."""
    usual = Prepare(source="folder", counts=Counts(train=1, val=1, test=1))
    return (load_settings().prepare if PARAMS.is_file() else usual).model_copy(update=dict(fields))
