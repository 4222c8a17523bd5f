"""Pairs from a folder on disk: images, and a file with the columns image, caption and perhaps paraphrase and split.

The file is `captions.tsv`, `.csv`, `.jsonl` or `.parquet`, or `metadata.csv` or `.jsonl` as Hugging Face's image
folders have it, where the columns are called file_name and text.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import InputError
from components.core.settings import Prepare
from components.data.listed_images import listed_source
from components.data.listing import SPLIT_NAMES, Line, Listing, checked_line, image_folder

Row = tuple[str, Mapping[str, Any]]
"""Its place in the file, and its fields."""

CAPTIONS = "captions.tsv"
_NAMES = {"file_name": "image", "filepath": "image", "text": "caption", "title": "caption"}
_COLUMNS = ("image", "caption", "paraphrase", "split")
_SPLITS = {"": "", **SPLIT_NAMES}


def read_listing(settings: Prepare) -> Listing:
    """The folder's captions.

    Raises:
        InputError: the folder or the file is missing, there are several, it is damaged, no UTF-8, without the columns
            image and caption or with one of them twice; or a line has more or fewer fields than columns, or a caption
            that is empty or too long; the message names the line.
    """
    folder = image_folder(settings)
    there = [name for name in _READERS if (folder / name).is_file()]
    if not there:
        raise InputError(f"{folder / CAPTIONS} is missing: {_HOW}")
    if len(there) > 1:
        raise InputError(f"{folder} has {' and '.join(there)}: keep the one that lists the images")
    file = folder / there[0]
    lines = [_line(file, place, row, settings) for place, row in _READERS[there[0]](file)]
    return Listing(file, folder, lines)


def _line(file: Path, place: str, row: Mapping[str, Any], settings: Prepare) -> Line:
    fields = {_NAMES.get(name, name): value for name, value in row.items() if name in (*_COLUMNS, *_NAMES)}
    bad = [name for name, value in fields.items() if not isinstance(value, str | None)]
    if bad or not isinstance(fields.get("image"), str):
        raise InputError(f"{file}: {place} has no text as {(bad or ['image'])[0]}: correct or remove it")
    split = str(fields.get("split") or "").strip().lower()
    if split not in _SPLITS:
        raise InputError(f"{file}: {place} has split '{split[:40]}': write train, val or test, or nothing")
    image, caption, paraphrase = (str(fields.get(name) or "") for name in ("image", "caption", "paraphrase"))
    return checked_line(file, Line(place, image, caption, paraphrase, _SPLITS[split]), settings)


def _text(file: Path) -> str:
    try:
        # Spreadsheets begin such a file with a byte order mark.
        return file.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is not UTF-8 (byte {error.start}): save it as UTF-8") from None


def _check_columns(file: Path, columns: list[str], separator: str = "") -> None:
    named = [_NAMES.get(name, name) for name in columns]
    if not {"image", "caption"} <= set(named):
        told = f"the first line must name the columns image and caption, separated by a {separator}"
        raise InputError(f"{file}: {told if separator else 'it must have the columns image and caption'}")
    twice = [name for name in _COLUMNS if named.count(name) > 1]
    if twice:
        told = "the first line" if separator else "it"
        raise InputError(f"{file}: {told} names the column {twice[0]} twice: rename or remove one of them")


def _table(file: Path, separator: str, quoting: Any) -> Iterator[Row]:
    reader = csv.reader(
        StringIO(_text(file), newline=""), delimiter="\t" if separator == "tab" else ",", quoting=quoting, strict=True
    )
    try:
        columns = next(reader, [])
        _check_columns(file, columns, separator)
        for fields in reader:
            if not fields:
                continue
            # Exact counts, or a separator within a caption would cut it or make its rest another column.
            if len(fields) != len(columns):
                fix = "write spaces for tabs within a caption, and a tab before a field that is empty"
                raise InputError(
                    f"{file}: line {reader.line_num} has {len(fields)} fields, the first line {len(columns)}: "
                    f"{fix if separator == 'tab' else 'quote captions that hold commas'}"
                )
            yield f"line {reader.line_num}", dict(zip(columns, fields, strict=True))
    except csv.Error as error:
        raise InputError(f"{file}: line {reader.line_num} cannot be read ({error}): shorten or remove it") from None


def _tsv(file: Path) -> Iterator[Row]:
    return _table(file, "tab", csv.QUOTE_NONE)


def _csv(file: Path) -> Iterator[Row]:
    return _table(file, "comma", csv.QUOTE_MINIMAL)


def _jsonl(file: Path) -> Iterator[Row]:
    # Not `splitlines`: JSON may hold characters such as U+2028 that it takes for the end of a line.
    for number, text in enumerate(_text(file).split("\n"), 1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except (json.JSONDecodeError, RecursionError) as error:
            raise InputError(f"{file}: line {number} is no JSON ({error}): correct or remove it") from None
        if not isinstance(row, dict):
            raise InputError(f"{file}: line {number} is no JSON object: write image and caption as its keys")
        _check_columns(file, list(row))
        yield f"line {number}", row


def _parquet(file: Path) -> Iterator[Row]:
    try:
        with pq.ParquetFile(file) as stored:
            names = stored.schema_arrow.names
            _check_columns(file, names)
            number = 0
            for batch in stored.iter_batches(columns=[name for name in names if name in (*_COLUMNS, *_NAMES)]):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is damaged ({error}): write it again") from None


_READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    CAPTIONS: _tsv,
    "captions.csv": _csv,
    "captions.jsonl": _jsonl,
    "captions.parquet": _parquet,
    "metadata.csv": _csv,
    "metadata.jsonl": _jsonl,
}
_HOW = "write one line for each caption, image<TAB>caption"


def find(folder: Path) -> str | None:
    """See `Source`."""
    return next((name for name in _READERS if (folder / name).is_file()), None)


SOURCE = listed_source(read_listing, find, CAPTIONS, _HOW)
