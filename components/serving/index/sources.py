"""Sources of images: pictures, and vectors of stage `embed` of this project, of another index or of other tools.

Vectors of other tools, such as clip-retrieval's, have no hash of their tower: `--encoder` names their encoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from components.core.compute.metrics import Features, Indices
from components.core.pictures.embedding_files import (
    COLUMNS,
    EmbeddingFile,
    embedding_files,
    name_column,
    read_embeddings,
)
from components.core.settings import PARAMS, Counts, Prepare, load_settings
from components.core.system.discovery import choose
from components.core.system.errors import InputError
from components.core.tables import formats
from components.core.tables.files import image_id
from components.core.tables.formats import read_record
from components.core.tables.records import PAIRS, SPLITS
from components.data.row_fields import RowFields
from components.encoders.embeddings import MANIFEST, ImageEmbeddings, Manifest
from components.encoders.under_test import EncoderUnderTest
from components.serving.index.building import ImageBlock, ImageSource, Opened
from components.serving.index.facts import FACTS, further_name, stored_type
from components.serving.index.image_index import ImageIndex
from components.serving.index.pictures import FOLDER, SHARDS, fields_of, tower_of

_BLOCK = 8192


def _embedding_files(given: str) -> list[EmbeddingFile]:
    path = Path(given)
    if path.is_dir():
        return embedding_files(path)
    return [file for file in embedding_files(path.parent) if file.embeddings == path]


def _open_embeddings(given: str, encoder: EncoderUnderTest | None, settings: Prepare) -> Opened:
    computing, tower, dim = tower_of(encoder, f"the files in {given} do not name the encoder that computed them")
    files, total, fields = _embedding_files(given), 0, fields_of(settings)
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
            for first in range(0, rows, _BLOCK):
                yield _embedding_block(file, first, min(_BLOCK, rows - first), dim, fields)

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
            for table in PAIRS.blocks(path, ["image_id", "caption", "image", "file", "position", "size"], _BLOCK):
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
    "folder": FOLDER,
    "index": ImageSource(lambda given: (Path(given) / FACTS).is_file(), _open_index),
    "project": ImageSource(lambda given: all(folder.is_dir() for folder in _project_folders(given)), _open_project),
    "shards": SHARDS,
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
