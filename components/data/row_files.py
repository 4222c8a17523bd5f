"""Files that list images with texts, one per row: TSV, CSV, JSON lines, a JSON list or Parquet.

Without such a file, each image may have a text file beside it, as img2dataset's format `files` and trainers of image
generators have.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, TextIO

from components.core.pictures.folder import picture_names
from components.core.system.errors import InputError
from components.core.system.user_files import Bound, checked_file, is_file, read_file
from components.core.tables.parquet_rows import DAMAGED, batches, opened_parquet
from components.data.row_fields import SPLIT, Row, found_columns
from components.data.source import SPLIT_WORDS

IMAGES = ("image", "file_name", "filepath", "filename", "image_path", "path", "file")
"""Names of the column with an image's file, in order of precedence."""
Columns = Mapping[str, tuple[str, ...]]
"""Required role of a row -> columns of which one must be there."""
_Check = Callable[[Sequence[str]], set[str]]
LIST_BOUND = Bound.of(4_000, "prepare.max_list_mb")
"""The default bound of a file of rows."""
_TEXTS = (".txt", ".caption")
"""Endings of a text file beside an image, besides `.json`."""
_MOST = Bound(1_000_000, "no setting")
_LOOKED_AT = 100
"""Images to look beside until one has a text."""
_LONGEST_LINE = 1 << 24
"""Most letters of a line, which is read into memory."""
_QUOTED = re.compile('"(?:[^"]|"")*"')
_SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon"}


@dataclass(frozen=True)
class RowFiles:
    """The files of a source of rows.

    Attributes:
        names: possible names without ending; a folder has one such file. Messages name the first as TSV.
        fix: how to repair a missing column, for files that `prepare` does not read.
        by_split: whether there may be a file for each split instead, such as `train.csv` and `val.csv`.
        roles: fields that sources read themselves -> possible columns; rows have them under these names too.
        text, texts: the word for a row's text, and its plural, for messages.
    """

    names: tuple[str, ...]
    roles: Columns
    text: str
    texts: str
    by_split: bool = False
    fix: str = ""

    @property
    def endings(self) -> Collection[str]:
        """The endings of files that `rows` reads."""
        return _READERS

    def find(self, folder: Path) -> str | None:
        """The first of the files that is in `folder`."""
        return next((file.name for file in self.among(folder)), None)

    def among(self, folder: Path) -> list[Path]:
        """Those of the files that are in `folder`: with one of the names or, without any, one for each split."""
        for names in (self.names, SPLIT_WORDS if self.by_split else ()):
            endings = _READERS if names is self.names else [one for one in _READERS if one != ".parquet"]
            files = [folder / f"{name}{ending}" for name in names for ending in endings]
            if present := [file for file in files if file.is_file()]:
                return present
        return []

    def those(self, folder: Path, how: str, most: Bound = LIST_BOUND) -> list[Path]:
        """The one file that is in `folder`, or those of splits."""
        present = self.among(folder)
        if not present:
            raise InputError(f"{folder / self.names[0]}.tsv is missing: {how}")
        if len({file.stem if file.stem in SPLIT_WORDS else "" for file in present}) < len(present):
            names = " and ".join(file.name for file in present)
            raise InputError(f"{folder} has {names}: keep the one that lists the images")
        for file in present:
            checked_file(file, folder, most)
        return present

    def rows(self, file: Path, required: Columns) -> Iterator[Row]:
        """The rows of one of the files.

        Args:
            required: what rows must have besides the first of `roles`.
        """
        columns = {name: names for name, names in self.roles.items() if name == "image"}
        columns.update(required)
        check = partial(self._check, file, columns)
        for place, row in _READERS[file.suffix](self, file, check):
            named = {role: next((name for name in names if name in row), role) for role, names in self.roles.items()}
            yield place, {**row, **{role: row.get(name) for role, name in named.items() if {role, name} & {*row}}}

    def _check(self, file: Path, required: Columns, names: Sequence[str]) -> set[str]:
        """The columns that are read."""
        found = found_columns(file, names, required, self.fix)
        others = [role for role, of in self.roles.items() if role != "image" and len({*of} & {*names}) > 1]
        if twice := [name for name in names if name and names.count(name) > 1] + others:
            raise InputError(f"{file} names the column {twice[0]} twice: rename or remove one of them")
        return {*found.values(), SPLIT, *chain.from_iterable(self.roles.values())}


@contextmanager
def _opened(file: Path, newline: str) -> Iterator[TextIO]:
    try:
        # Spreadsheets write a byte order mark.
        with file.open(encoding="utf-8-sig", newline=newline) as stream:
            yield stream
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8: save it as UTF-8") from None


def _lines(file: Path, stream: TextIO) -> Iterator[str]:
    for number in count(1):
        line = stream.readline(_LONGEST_LINE + 1)
        if len(line) > _LONGEST_LINE:
            raise InputError(f"{file}: line {number} has more than {_LONGEST_LINE:,} letters: shorten or remove it")
        if not line:
            return
        yield line


def _tsv(kind: RowFiles, file: Path, check: _Check) -> Iterator[Row]:
    fix = f"write spaces for tabs and line breaks in a {kind.text}, and a tab before an empty field"
    return _table(file, "\t", csv.QUOTE_NONE, _unquoted, check, fix)


def _csv(kind: RowFiles, file: Path, check: _Check) -> Iterator[Row]:
    with _opened(file, "") as stream:
        first = next(_lines(file, stream), "")
    separator = next((one for one in _SEPARATORS if one in first), ",")
    fix = f"quote {kind.texts} that hold {_SEPARATORS[separator]}s"
    return _table(file, separator, csv.QUOTE_MINIMAL, str, check, fix)


def _table(
    file: Path, separator: str, quoting: Any, read: Callable[[str], str], check: _Check, fix: str
) -> Iterator[Row]:
    with _opened(file, "") as stream:
        reader = csv.reader(_lines(file, stream), delimiter=separator, quoting=quoting, strict=True)
        try:
            columns = list(map(read, next(reader, [])))
            try:
                check(columns)
            except InputError as error:
                raise InputError(
                    f"{error}; the first line names columns, separated by a {_SEPARATORS[separator]}"
                ) from None
            for fields in filter(None, reader):
                # With another count, a separator in a text would truncate it or move its rest to another column.
                if len(fields) != len(columns):
                    raise InputError(
                        f"{file}: line {reader.line_num} has {len(fields)} fields, the first line {len(columns)}: {fix}"
                    )
                yield f"line {reader.line_num}", dict(zip(columns, map(read, fields), strict=True))
        except csv.Error as error:
            raise InputError(f"{file}: line {reader.line_num} cannot be read ({error}): shorten or remove it") from None


def _unquoted(text: str) -> str:
    """A field without the quoting of spreadsheets and pandas, which double its quotes; other fields are unchanged.

    >>> _unquoted('"He said ""hi"", ok"'), _unquoted('"Stop" on a sign')
    ('He said "hi", ok', '"Stop" on a sign')
    """
    return text[1:-1].replace('""', '"') if _QUOTED.fullmatch(text) else text


def _jsonl(_kind: RowFiles, file: Path, check: _Check) -> Iterator[Row]:
    with _opened(file, "\n") as stream:
        lines = ((f"line {number}", text) for number, text in enumerate(_lines(file, stream), 1) if text.strip())
        yield from _objects(file, ((place, _parsed(f"{file}: {place}", text)) for place, text in lines), check)


def _json(_kind: RowFiles, file: Path, check: _Check) -> Iterator[Row]:
    """A list of objects, or an object of images and their captions."""
    with _opened(file, "\n") as stream:
        rows = _parsed(str(file), stream.read())
    texts = (
        [one for value in rows.values() for one in (value if isinstance(value, list) else [value])]
        if isinstance(rows, dict)
        else [None]
    )
    if all(isinstance(text, str) for text in texts):
        rows = [{"image": image, "caption": captions} for image, captions in rows.items()]
    if not isinstance(rows, list):
        raise InputError(f'{file} is not a JSON list: write [{{"image": "0.jpg", "caption": "..."}}, ...]')
    yield from _objects(file, ((f"object {number}", row) for number, row in enumerate(rows, 1)), check)


def _parsed(place: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place} is not JSON ({error}): correct or remove it") from None


def _objects(file: Path, rows: Iterator[tuple[str, Any]], check: _Check) -> Iterator[Row]:
    """Rows that may leave out keys without a value; a key that none has is missing."""
    names: dict[str, None] = {}
    for place, row in rows:
        if not isinstance(row, dict):
            raise InputError(f"{file}: {place} is not a JSON object: write the columns as its keys")
        names |= dict.fromkeys(row)
        yield place, row
    check(list(names))


def _parquet(kind: RowFiles, file: Path, check: _Check) -> Iterator[Row]:
    try:
        with opened_parquet(file) as stored:
            read, number = check(names := stored.schema_arrow.names), 0
            wanted = [name for name in names if name in read]
            parts = (batches(stored, group, wanted) for group in range(stored.num_row_groups))
            for batch in chain.from_iterable(parts):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except DAMAGED as error:
        raise InputError(f"{file} is damaged ({error}): write it again") from None


_READERS: dict[str, Callable[[RowFiles, Path, _Check], Iterator[Row]]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
}


def find_sidecar(folder: Path) -> str | None:
    """The first text beside an image in `folder` or below, of some images; None without one."""
    for image in map(Path, sorted(islice(picture_names(folder), _LOOKED_AT))):
        for ending in (*_TEXTS, ".json"):
            if is_file(folder / (text := image.with_suffix(ending))):
                return str(text)
    return None


def sidecar_rows(folder: Path, names: Iterable[str]) -> Iterator[Row]:
    """A row for each image: its path, the keys of its JSON file, and the text of its text file as caption."""
    for name in names:
        image, row = folder / name, dict[str, Any]()
        if is_file(file := image.with_suffix(".json")):
            row = _parsed(str(file), _text(file, folder))
            if not isinstance(row, dict):
                raise InputError(f'{file} is not a JSON object: write {{"caption": ...}}')
        text = next((file for ending in _TEXTS if is_file(file := image.with_suffix(ending))), None)
        yield name, row | {"image": name} | ({} if text is None else {"caption": _text(text, folder)})


def _text(file: Path, folder: Path) -> str:
    try:
        return read_file(file, folder, _MOST).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8: save it as UTF-8") from None
