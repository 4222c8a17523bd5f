"""Files that list images with texts, one per row: TSV, CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa

from components.core.system.errors import InputError
from components.core.system.user_files import Bound, checked_file
from components.core.tables.parquet_rows import batches, opened_parquet

Row = tuple[str, Mapping[str, Any]]
"""Its place in the file, and its fields by column; there may be further columns."""
LIST_BOUND = Bound.of(4_000, "prepare.max_list_mb")
"""The default bound of a file of rows."""
_LONGEST_LINE = 1 << 24
"""Most letters of a line, which is read into memory."""
_QUOTED = re.compile('"(?:[^"]|"")*"')


@dataclass(frozen=True)
class RowFiles:
    """The files of a source of rows, and their columns.

    Attributes:
        files: possible names; a folder has one of them. Messages name the first.
        names: other name of a column -> the column.
        texts: plural of `text`, for messages.
    """

    files: tuple[str, ...]
    required: tuple[str, ...]
    optional: tuple[str, ...]
    text: str
    texts: str
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def endings(self) -> Collection[str]:
        """The endings of files that `rows` reads."""
        return _READERS

    def find(self, folder: Path) -> str | None:
        """The first of the files that is in `folder`."""
        return next((name for name in self.files if (folder / name).is_file()), None)

    def only(self, folder: Path, how: str, most: Bound = LIST_BOUND) -> Path:
        """The one file that is in `folder`.

        Raises:
            InputError: there is none, with the fix `how`, or there are several; or it is larger than `most`, or a link
                to a file outside the folder.
        """
        present = [name for name in self.files if (folder / name).is_file()]
        if not present:
            raise InputError(f"{folder / self.files[0]} is missing: {how}")
        if len(present) > 1:
            raise InputError(f"{folder} has {' and '.join(present)}: keep the one that lists the images")
        checked_file(folder / present[0], folder, most)
        return folder / present[0]

    def rows(self, file: Path) -> Iterator[Row]:
        """The rows of one of the files.

        Raises:
            InputError: it is damaged, not UTF-8, without a required column or with a column twice, or a line has more
                or fewer fields than columns; the message names the line.
        """
        for place, row in _READERS[file.suffix](self, file):
            yield place, {self._named(name): value for name, value in row.items()}

    def check_columns(self, file: Path, columns: list[str], separator: str = "") -> None:
        """Raise `InputError` if a required column is missing, or a column occurs twice."""
        named = [self._named(name) for name in columns]
        required = " and ".join(dict.fromkeys(self.required))
        if not set(self.required) <= set(named):
            fix = f"the first line must name the columns {required}, separated by a {separator}"
            has = f"; it has {', '.join(columns)}" if len(columns) > 1 else ""
            raise InputError(f"{file}: {fix if separator else f'it must have the columns {required}'}{has}")
        twice = [name for name in (*self.required, *self.optional) if named.count(name) > 1]
        if twice:
            where = "the first line" if separator else "it"
            raise InputError(f"{file}: {where} names the column {twice[0]} twice: rename or remove one of them")

    def reads(self, name: str) -> bool:
        """Whether a column is required or optional."""
        return self._named(name) in (*self.required, *self.optional)

    def _named(self, name: str) -> str:
        return self.names.get(name, name)


def texts_of(file: Path, place: str, row: Mapping[str, Any], *columns: str) -> list[str]:
    """The row's texts; missing ones are empty, but the first must not be missing.

    Raises:
        InputError: a value is not a text.
    """
    bad = [name for name in columns if not _is_text(row.get(name) or "")]
    if bad or row.get(columns[0]) is None:
        raise InputError(f"{file}: {place} has no text as {(bad or columns)[0]}: correct or remove it")
    return [row.get(name) or "" for name in columns]


def _is_text(value: Any) -> bool:
    """Whether it is a text that UTF-8 can encode; JSON may contain lone surrogates."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


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


def _table(kind: RowFiles, file: Path, separator: str, quoting: Any, read: Callable[[str], str]) -> Iterator[Row]:
    with _opened(file, "") as stream:
        reader = csv.reader(
            _lines(file, stream), delimiter="\t" if separator == "tab" else ",", quoting=quoting, strict=True
        )
        try:
            columns = list(map(read, next(reader, [])))
            kind.check_columns(file, columns, separator)
            for fields in filter(None, reader):
                # With another count, a separator in a text would truncate it or move its rest to another column.
                if len(fields) != len(columns):
                    fix = f"write spaces for tabs and line breaks in a {kind.text}, and a tab before an empty field"
                    raise InputError(
                        f"{file}: line {reader.line_num} has {len(fields)} fields, the first line {len(columns)}: "
                        f"{fix if separator == 'tab' else f'quote {kind.texts} that hold commas'}"
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


def _jsonl(kind: RowFiles, file: Path) -> Iterator[Row]:
    with _opened(file, "\n") as stream:
        for number, text in enumerate(_lines(file, stream), 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{file}: line {number} is not JSON ({error}): correct or remove it") from None
            if not isinstance(row, dict):
                raise InputError(
                    f"{file}: line {number} is not a JSON object: write {' and '.join(kind.required)} as its keys"
                )
            kind.check_columns(file, list(row))
            yield f"line {number}", row


def _parquet(kind: RowFiles, file: Path) -> Iterator[Row]:
    try:
        with opened_parquet(file) as stored:
            names = stored.schema_arrow.names
            kind.check_columns(file, names)
            number = 0
            wanted = [name for name in names if kind.reads(name)]
            parts = (batches(stored, group, wanted) for group in range(stored.num_row_groups))
            for batch in chain.from_iterable(parts):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{file} is damaged ({error}): write it again") from None


_READERS: dict[str, Callable[[RowFiles, Path], Iterator[Row]]] = {
    ".tsv": lambda kind, file: _table(kind, file, "tab", csv.QUOTE_NONE, _unquoted),
    ".csv": lambda kind, file: _table(kind, file, "comma", csv.QUOTE_MINIMAL, str),
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
