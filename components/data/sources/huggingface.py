"""A Hugging Face dataset with an image and a caption column, as a local folder of Parquet files.

Files are `<split>-*.parquet` or `<split>.parquet`, in the folder or in `data` below it, as the hub stores them; all of
them train where none names a split. The image column holds bytes, or `{bytes, path}`; the caption column holds a text
or a list of texts. Images that lie beside a table which only names them are read by source `folder`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import InputError
from components.core.pictures import IMAGE_COLUMNS, image_column
from components.core.settings import Prepare
from components.data.checked_pictures import Part, Sample
from components.data.listing import SPLIT_NAMES, image_folder
from components.data.source import Described
from components.data.streamed_images import TRAIN, Splits, streamed_source

_SPLIT = re.compile(rf"({'|'.join(SPLIT_NAMES)})(?:-.*)?\.parquet")
_CAPTIONS = ("caption", "captions", "text", "sentences", "sentence", "sentids_raw", "title", "alt_text")
_FIRST = 8
"""Images of each file that `cliptune import` opens."""
_ROWS = 64
"""Read at a time: a row holds an image."""
_PART = 1_000
"""Rows that are checked together, and so many more as their row group has."""
_HOW = "download the dataset's Parquet files into it, such as data/train-00000-of-00001.parquet"


def read_splits(settings: Prepare) -> Splits:
    """The dataset's published splits.

    Raises:
        InputError: the folder is missing, has no Parquet files, none to train on, or a damaged one.
    """
    found = _by_split(image_folder(settings))
    return {split: [part for file in files for part in _parts(file)] for split, files in found.items()}


def _parts(file: Path) -> Iterator[Part]:
    """Some row groups of a file each."""
    try:
        found = file.stat()
        with pq.ParquetFile(file) as stored:
            _columns(file, stored.schema_arrow)
            counts = [stored.metadata.row_group(group).num_rows for group in range(stored.num_row_groups)]
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is damaged ({error}): fetch it again") from None
    group, first = 0, 0
    while group < len(counts):
        last, rows = group, 0
        while last < len(counts) and rows < _PART:
            last, rows = last + 1, rows + counts[last]
        stamp = f"{file} {found.st_size} {found.st_ctime_ns} {group} {last}"
        yield Part(stamp, partial(_samples, file, list(range(group, last)), first), rows)
        group, first = last, first + rows


def _by_split(folder: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file in _files(folder):
        named = _SPLIT.fullmatch(file.name)
        split = SPLIT_NAMES[named[1]] if named else TRAIN
        found.setdefault(split, []).append(file)
    if TRAIN not in found:
        raise InputError(f"{folder} has no Parquet file to train on: {_HOW}")
    return found


def describe(settings: Prepare) -> Described:
    """What the files' captions say; of the images those of each file's first rows may be opened.

    Raises:
        InputError: as `read_splits`, or a file is damaged.
    """
    images: dict[str, int] = {}
    captions: dict[str, int] = {}
    most, pictures = 0, list[tuple[str, Callable[[], bytes]]]()
    for split, files in _by_split(image_folder(settings)).items():
        for file in files:
            try:
                with pq.ParquetFile(file) as stored:
                    _, column = _columns(file, stored.schema_arrow)
                    told = stored.read([column]).column(0).to_pylist()
            except (pa.ArrowException, OSError) as error:
                raise InputError(f"{file} is damaged ({error}): fetch it again") from None
            counts = [1 if isinstance(text, str) else len(text or []) for text in told]
            images[split] = images.get(split, 0) + len(counts)
            captions[split] = captions.get(split, 0) + sum(counts)
            most = max([most, *counts])
            first = islice(_samples(file, [0] if told else [], 0), _FIRST)
            pictures += [(sample.place, partial(bytes, sample.raw)) for sample in first]
    return Described(images, captions, most, pictures)


def _samples(file: Path, groups: list[int], first: int) -> Iterator[Sample]:
    """Rows of some row groups, of which the first is the file's row `first` (counted from 0)."""
    try:
        with pq.ParquetFile(file) as stored:
            image, caption = _columns(file, stored.schema_arrow)
            batches = stored.iter_batches(_ROWS, row_groups=groups, columns=[image, caption])
            for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), first):
                yield _sample(file, number, row[image], row[caption])
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is damaged ({error}): fetch it again") from None


def _sample(file: Path, row: int, image: Any, captions: Any) -> Sample:
    place, name = f"{file}: row {row + 1}", ""
    if isinstance(image, dict):
        image, name = image.get("bytes"), str(image.get("path") or "")
    if not isinstance(image, bytes) or not image:
        raise InputError(f"{place} holds no image: fetch the dataset with its images embedded")
    texts = [captions] if isinstance(captions, str) else captions or []
    texts = [text.get("raw") if isinstance(text, dict) else text for text in texts]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{place} holds no caption: remove the row")
    return Sample(place, image, str(file), row, tuple(texts), name)


def _columns(file: Path, schema: pa.Schema) -> tuple[str, str]:
    """Names of the image column and the caption column."""
    image = image_column(schema)
    caption = next((name for name in _CAPTIONS if name in schema.names), None)
    if image is None or caption is None:
        what, names = ("image", IMAGE_COLUMNS) if image is None else ("caption", _CAPTIONS)
        raise InputError(
            f"{file} has the columns {', '.join(schema.names)} and none for the {what}: rename one to one of "
            f"{', '.join(names)}"
        )
    return image, caption


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.parquet"), *(folder / "data").glob("*.parquet")])


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


SOURCE = streamed_source(read_splits, describe, find, "*.parquet", _HOW)
