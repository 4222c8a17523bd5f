"""A Hugging Face dataset with an image and a caption column, as Parquet files in a folder or its subfolder `data`.

The split of a row is that of the column `split`, or a word in the file's name, such as `validation-00000.parquet`. A
row without image or caption is left out and counted. If a table only names images in other files, use source `folder`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.pictures.folder import files_in
from components.core.pictures.stored_pictures import image_column, table_and_column
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.system.user_files import Bound
from components.core.tables.parquet_rows import DAMAGED, batches, opened_parquet
from components.data.listed_images import image_folder
from components.data.row_fields import SPLIT, RowFields
from components.data.source import PictureChunk, Sample, Unusable, UnusableError, split_in_path
from components.data.streamed_images import TRAIN, Splits, streamed_source

_CHUNK = 1_000
"""Rows that are checked together, rounded up to whole row groups."""
_HOW = "download the dataset's Parquet files into it, such as data/train-00000-of-00001.parquet"


def read_splits(settings: Prepare) -> Splits:
    """The dataset's published splits."""
    folder, fields = image_folder(settings), RowFields.of(settings)
    splits: dict[str, list[PictureChunk]] = {}
    for file in _files(folder):
        split, parts = _parts(file, split_in_path(str(file.relative_to(folder))), fields, settings.picture_bound)
        splits.setdefault(split, []).extend(parts)
    if TRAIN not in splits:
        raise InputError(f"{folder} has no training Parquet file: {_HOW}")
    return splits


def _parts(file: Path, named: str, fields: RowFields, most: Bound) -> tuple[str, Iterator[PictureChunk]]:
    """The split of a file, and its row groups in chunks."""
    try:
        with opened_parquet(file) as stored:
            columns = _columns(file, stored.schema_arrow, fields)
            counts = [stored.metadata.row_group(group).num_rows for group in range(stored.num_row_groups)]
    except DAMAGED as error:
        raise InputError(f"{file} is damaged ({error}): download it again") from None
    return TRAIN if SPLIT in columns else named or TRAIN, _row_groups(file, named, fields, columns, counts, most)


def _row_groups(
    file: Path, named: str, fields: RowFields, columns: list[str], counts: list[int], most: Bound
) -> Iterator[PictureChunk]:
    stat = file.stat()
    group, first = 0, 0
    while group < len(counts):
        last, rows = group, 0
        while last < len(counts) and rows < _CHUNK:
            last, rows = last + 1, rows + counts[last]
        stamp = f"{file} {named} {fields.stamp} {stat.st_size} {stat.st_ctime_ns} {group} {last} {most.bytes}"
        groups = list(range(group, last))
        yield PictureChunk(stamp, partial(_samples, file, named, fields, columns, groups, first, most), rows)
        group, first = last, first + rows


def _samples(
    file: Path, named: str, fields: RowFields, columns: list[str], groups: list[int], first: int, most: Bound
) -> Iterator[Sample | Unusable]:
    """The rows of some row groups; the first has number `first` (counted from 0)."""
    stored_in = table_and_column(file, fields.image)
    try:
        with opened_parquet(file) as stored:
            parts = chain.from_iterable(batches(stored, group, columns) for group in groups)
            for number, row in enumerate((row for batch in parts for row in batch.to_pylist()), first):
                place, (raw, name) = f"{file}: row {number + 1}", _image(row.pop(columns[0]))
                try:
                    if not raw:
                        raise UnusableError(f"{place} has no image: download the dataset with embedded images")
                    if len(raw) > most.bytes:
                        raise UnusableError(f"{place} is too large: shrink it or raise {most.setting}")
                    texts = fields.read(place, row, named)
                except UnusableError as fault:
                    yield Unusable.by(fault)
                    continue
                yield Sample.of(raw, place, stored_in, number, texts.captions, name, texts.split, texts.item)
    except DAMAGED as error:
        raise InputError(f"{file} is damaged ({error}): download it again") from None


def _image(cell: Any) -> tuple[bytes, str]:
    """The encoded picture and its name; empty without one."""
    raw, name = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (cell, None)
    return raw if isinstance(raw, bytes) else b"", str(name or "")


def _columns(file: Path, schema: pa.Schema, fields: RowFields) -> list[str]:
    """Names of the columns that are read, the image column first."""
    image = image_column(schema, fields.image)
    if image is None:
        pictures = [name for name in schema.names if image_column(schema, name) is not None]
        fix = f"name it by --image, such as --image {pictures[0]}" if pictures else _HOW
        named = "no images" if fields.image is None else f"no images in '{fields.image}'"
        raise InputError(f"{file} has the columns {', '.join(schema.names)} and {named}: {fix}")
    return fields.columns(file, schema.names, [image])


def _files(folder: Path) -> list[Path]:
    return files_in(folder, "*.parquet", "data/*.parquet")


def find(folder: Path) -> str | None:
    """See `Source`: a Parquet file with images in it."""
    for file in _files(folder)[:1]:
        try:
            schema = pq.read_schema(file)
        except DAMAGED:
            return None
        if any(image_column(schema, name) is not None for name in schema.names):
            return str(file.relative_to(folder))
    return None


SOURCE = streamed_source(read_splits, find, "*.parquet", _HOW)
