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
from components.core.pictures.stored_pictures import IMAGE_COLUMNS, image_column
from components.core.settings import Prepare
from components.core.system.errors import InputError
from components.core.system.user_files import Bound
from components.core.tables.parquet_rows import batches, opened_parquet
from components.data.listed_images import image_folder
from components.data.source import PictureChunk, Sample, Unusable, UnusableError, split_in_path, split_of_word
from components.data.streamed_images import TRAIN, Splits, streamed_source

_CAPTIONS = ("caption", "captions", "text", "sentences", "sentence", "sentids_raw", "title", "alt_text")
_SPLIT = "split"
_CHUNK = 1_000
"""Rows that are checked together, rounded up to whole row groups."""
_HOW = "download the dataset's Parquet files into it, such as data/train-00000-of-00001.parquet"


def read_splits(settings: Prepare) -> Splits:
    """The dataset's published splits.

    Raises:
        InputError: the folder is missing, has no Parquet files, none to train on, or a damaged one.
    """
    folder = image_folder(settings)
    splits: dict[str, list[PictureChunk]] = {}
    for file in _files(folder):
        split, parts = _parts(file, split_in_path(str(file.relative_to(folder))), settings.picture_bound)
        splits.setdefault(split, []).extend(parts)
    if TRAIN not in splits:
        raise InputError(f"{folder} has no training Parquet file: {_HOW}")
    return splits


def _parts(file: Path, named: str, most: Bound) -> tuple[str, Iterator[PictureChunk]]:
    """The split of a file, and its row groups in chunks."""
    try:
        with opened_parquet(file) as stored:
            columns = _columns(file, stored.schema_arrow)
            counts = [stored.metadata.row_group(group).num_rows for group in range(stored.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is damaged ({error}): download it again") from None
    return TRAIN if _SPLIT in columns else named or TRAIN, _row_groups(file, named, counts, most)


def _row_groups(file: Path, named: str, counts: list[int], most: Bound) -> Iterator[PictureChunk]:
    stat = file.stat()
    group, first = 0, 0
    while group < len(counts):
        last, rows = group, 0
        while last < len(counts) and rows < _CHUNK:
            last, rows = last + 1, rows + counts[last]
        stamp = f"{file} {named} {stat.st_size} {stat.st_ctime_ns} {group} {last} {most.bytes}"
        yield PictureChunk(stamp, partial(_samples, file, named, list(range(group, last)), first, most), rows)
        group, first = last, first + rows


def _samples(file: Path, named: str, groups: list[int], first: int, most: Bound) -> Iterator[Sample | Unusable]:
    """The rows of some row groups; the first has number `first` (counted from 0)."""
    try:
        with opened_parquet(file) as stored:
            columns = _columns(file, stored.schema_arrow)
            parts = chain.from_iterable(batches(stored, group, columns) for group in groups)
            for number, row in enumerate((row for batch in parts for row in batch.to_pylist()), first):
                try:
                    sample = _sample(file, named, number, *(row[name] for name in columns))
                    if sample.size is not None and sample.size > most.bytes:
                        raise UnusableError(f"{sample.place} is too large: shrink it or raise {most.setting}")
                    yield sample
                except UnusableError as fault:
                    yield Unusable(str(fault))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is damaged ({error}): download it again") from None


def _sample(file: Path, named: str, row: int, image: Any, captions: Any, split: Any = None) -> Sample:
    place, name = f"{file}: row {row + 1}", ""
    if isinstance(image, dict):
        image, name = image.get("bytes"), str(image.get("path") or "")
    if not isinstance(image, bytes) or not image:
        raise UnusableError(f"{place} has no image: download the dataset with embedded images")
    texts = [captions] if isinstance(captions, str) else captions or []
    texts = [text.get("raw") if isinstance(text, dict) else text for text in texts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise UnusableError(f"{place} has no caption: remove the row")
    return Sample.of(image, place, str(file), row, tuple(texts), name, split_of_word(place, split) or named)


def _columns(file: Path, schema: pa.Schema) -> list[str]:
    """Names of the image column, the caption column and, if it exists, the split column."""
    image = image_column(schema)
    caption = next((name for name in _CAPTIONS if name in schema.names), None)
    if image is None or caption is None:
        what, names = ("image", IMAGE_COLUMNS) if image is None else ("caption", _CAPTIONS)
        raise InputError(
            f"{file} has the columns {', '.join(schema.names)} and none for the {what}: rename one to one of "
            f"{', '.join(names)}"
        )
    return [image, caption, *([_SPLIT] if _SPLIT in schema.names else [])]


def _files(folder: Path) -> list[Path]:
    return files_in(folder, "*.parquet", "data/*.parquet")


def find(folder: Path) -> str | None:
    """See `Source`: a Parquet file with images in it."""
    for file in _files(folder)[:1]:
        try:
            schema = pq.read_schema(file)
        except (pa.ArrowException, OSError):
            return None
        if image_column(schema) is not None:
            return str(file.relative_to(folder))
    return None


SOURCE = streamed_source(read_splits, find, "*.parquet", _HOW)
