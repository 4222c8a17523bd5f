"""Files that list a folder's images with texts, one row each, as TSV, CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from components.core.errors import InputError

Row = tuple[str, Mapping[str, Any]]
"""Its place in the file, and its fields by column; there may be others beside them."""
_QUOTED = re.compile('"(?:[^"]|"")*"')


@dataclass(frozen=True)
class RowFiles:
    """The files that a source's rows may stand in, and their columns.

    Attributes:
        files: their names, of which a folder has one; the first is the one that users are told to write.
        required: columns that must be there.
        optional: columns that may be there; others are the user's own.
        names: what else a column may be called -> the column.
        text: the column of texts.
        texts: what messages call several of them.
    """

    files: tuple[str, ...]
    required: tuple[str, str]
    optional: tuple[str, ...]
    text: str
    texts: str
    names: Mapping[str, str] = field(default_factory=dict)

    def find(self, folder: Path) -> str | None:
        """The first of the files that is in `folder`."""
        return next((name for name in self.files if (folder / name).is_file()), None)

    def only(self, folder: Path, how: str) -> Path:
        """The one file that is in `folder`.

        Raises:
            InputError: none is, which `how` says how to mend, or several are.
        """
        there = [name for name in self.files if (folder / name).is_file()]
        if not there:
            raise InputError(f"{folder / self.files[0]} is missing: {how}")
        if len(there) > 1:
            raise InputError(f"{folder} has {' and '.join(there)}: keep the one that lists the images")
        return folder / there[0]

    def rows(self, file: Path) -> Iterator[Row]:
        """The rows of one of the files.

        Raises:
            InputError: it is damaged, no UTF-8, without a required column or with a column twice, or a line has more
                or fewer fields than columns; the message names the line.
        """
        for place, row in _READERS[file.suffix](self, file):
            yield place, {self._named(name): value for name, value in row.items()}

    def check_columns(self, file: Path, columns: list[str], separator: str = "") -> None:
        """Raise `InputError` where a required column is missing, or any is there twice."""
        named = [self._named(name) for name in columns]
        one, other = self.required
        if not set(self.required) <= set(named):
            told = f"the first line must name the columns {one} and {other}, separated by a {separator}"
            raise InputError(f"{file}: {told if separator else f'it must have the columns {one} and {other}'}")
        twice = [name for name in (*self.required, *self.optional) if named.count(name) > 1]
        if twice:
            told = "the first line" if separator else "it"
            raise InputError(f"{file}: {told} names the column {twice[0]} twice: rename or remove one of them")

    def knows(self, name: str) -> bool:
        """Whether a column is one of these."""
        return self._named(name) in (*self.required, *self.optional)

    def _named(self, name: str) -> str:
        return self.names.get(name, name)


def texts_of(file: Path, place: str, row: Mapping[str, Any], *columns: str) -> list[str]:
    """The row's texts, empty ones for columns that it lacks; the first may not lack.

    Raises:
        InputError: one is no text.
    """
    bad = [name for name in columns if not _is_text(row.get(name) or "")]
    if bad or row.get(columns[0]) is None:
        raise InputError(f"{file}: {place} has no text as {(bad or columns)[0]}: correct or remove it")
    return [row.get(name) or "" for name in columns]


def _is_text(value: Any) -> bool:
    """Whether it is one that UTF-8 can write, which JSON's halves of letters beyond 16 bits are not."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


@contextmanager
def _opened(file: Path, newline: str) -> Iterator[TextIO]:
    try:
        # Spreadsheets begin such a file with a byte order mark.
        with file.open(encoding="utf-8-sig", newline=newline) as stream:
            yield stream
    except UnicodeDecodeError:
        raise InputError(f"{file} is not UTF-8: save it as UTF-8") from None


def _table(kind: RowFiles, file: Path, separator: str, quoting: Any, read: Callable[[str], str]) -> Iterator[Row]:
    with _opened(file, "") as stream:
        reader = csv.reader(stream, delimiter="\t" if separator == "tab" else ",", quoting=quoting, strict=True)
        try:
            columns = list(map(read, next(reader, [])))
            kind.check_columns(file, columns, separator)
            for fields in filter(None, reader):
                # Exact counts, or a separator within a text would cut it or make its rest another column.
                if len(fields) != len(columns):
                    fix = f"write spaces for tabs and line breaks in a {kind.text}, and a tab before an empty field"
                    raise InputError(
                        f"{file}: line {reader.line_num} has {len(fields)} fields, the first line {len(columns)}: "
                        f"{fix if separator == 'tab' else f'quote {kind.texts} that hold commas'}"
                    )
                yield f"line {reader.line_num}", dict(zip(columns, map(read, fields), strict=True))
        except csv.Error as error:
            raise InputError(f"{file}: line {reader.line_num} cannot be read ({error}): shorten or remove it") from None


def _tsv(kind: RowFiles, file: Path) -> Iterator[Row]:
    return _table(kind, file, "tab", csv.QUOTE_NONE, _unquoted)


def _csv(kind: RowFiles, file: Path) -> Iterator[Row]:
    return _table(kind, file, "comma", csv.QUOTE_MINIMAL, str)


def _unquoted(text: str) -> str:
    """A field as spreadsheets and pandas quote it, with each quote in it doubled; another that has quotes is as it is.

    >>> _unquoted('"He said ""hi"", ok"'), _unquoted('"Stop" on a sign')
    ('He said "hi", ok', '"Stop" on a sign')
    """
    return text[1:-1].replace('""', '"') if _QUOTED.fullmatch(text) else text


def _jsonl(kind: RowFiles, file: Path) -> Iterator[Row]:
    with _opened(file, "\n") as stream:
        for number, text in enumerate(stream, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{file}: line {number} is no JSON ({error}): correct or remove it") from None
            if not isinstance(row, dict):
                raise InputError(
                    f"{file}: line {number} is no JSON object: write {' and '.join(kind.required)} as its keys"
                )
            kind.check_columns(file, list(row))
            yield f"line {number}", row


def _parquet(kind: RowFiles, file: Path) -> Iterator[Row]:
    try:
        with pq.ParquetFile(file) as stored:
            names = stored.schema_arrow.names
            kind.check_columns(file, names)
            number = 0
            for batch in stored.iter_batches(columns=[name for name in names if kind.knows(name)]):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is damaged ({error}): write it again") from None


_READERS: dict[str, Callable[[RowFiles, Path], Iterator[Row]]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
