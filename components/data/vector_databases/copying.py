"""Copies the vectors and fields of a database into a folder that source `embeddings` reads."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.pictures.embedding_files import CAPTIONS, COLUMNS, caption_column
from components.core.system.errors import InputError, prefixed_errors, shown_address
from components.core.system.progress import bar
from components.core.tables.files import atomic_file, content_hash
from components.data.text_template import TextTemplate
from components.data.vector_databases import find_store
from components.data.vector_databases.store import OpenStore, Page, StoreUrl, require_one_length

STATE = Path("state/vector_stores")
_PICTURES = ("image_path", "path", "file", "filename", "url", "image_url", "image")
"""Names of fields with the place of a picture, in order of precedence."""
_ROWS = 1000
"""Rows of a page, which memory holds."""
_LOOKED_AT = 10
"""Pages that `look` reads, or more until one has a vector."""
_COMPARED = 8
"""Pages of a copy, about, that are read again to see whether the database has changed."""
_SHOWN = 3
_MARK = b"mark"
"""Metadata of a page's file: a `_Mark`."""
_GROUPS = re.compile(
    r"(?:^|[^a-z])(collection|model|encoder|embedder|namespace|tenant|dataset|index|modality|kind|type)(?:[^a-z]|$)",
    re.IGNORECASE,
)
"""Names of fields whose values separate collections or models that share one table."""
_SAFE = "=' "
_MOST_GROUPS = 20
"""A field with more values is of something else."""


@dataclass(frozen=True)
class FirstRows:
    """The content of a database, by its first pages.

    Attributes:
        captions: of the first rows.
        notes: facts that the user should know before the copy.
    """

    rows: int
    dim: int
    fields: Sequence[str]
    captions: Sequence[str]
    notes: Sequence[str]


@dataclass(frozen=True)
class _Mark:
    """A copied page.

    Attributes:
        version: state of the database.
        after, last: keys before and at the end of the page.
        read: number of rows up to its end.
        content: hash of the page.
        usable: rows whose vectors are finite and not zero.
    """

    version: str
    after: Any
    last: Any
    read: int
    content: str
    dim: int
    usable: int


def look(url: str, text: str | None = None) -> FirstRows:
    """Read the first pages; raises as `copy`."""
    with _reading(url, "run this again") as (opened, place):
        groups, fields, captions, dim = _Groups(), dict[str, None](), list[str](), 0
        for number, page in enumerate(_pages(opened, None), 1):
            groups.add(page.payloads)
            fields |= dict.fromkeys(name for payload in page.payloads for name in payload)
            if page.keys and not captions:
                template, dim = _template(page, text), page.vectors.shape[1]
                captions = [text for payload in page.payloads[:_SHOWN] for text in template.captions(payload) or ("",)]
            if captions and number >= _LOOKED_AT:
                break
        if not captions:
            raise InputError(_no_vector(opened))
        return FirstRows(opened.count(), dim, list(fields), captions, _notes(groups, place))


def copy(url: str, folder: Path, text: str | None = None, state: Path = STATE) -> int:
    """Write the rows of a database that have vectors, with all their fields, as Parquet files into a new folder.

    Pages are kept in `state` until the last one, so that a stopped copy resumes. Nothing is written to the
    database.

    Args:
        text: `prepare.text` of the copy, of which no field may be missing.

    Returns:
        The number of rows.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} has files: name a new folder for the vectors")
    groups = _Groups()
    with _reading(url, "run this again: the copy resumes") as (opened, place):
        staged = state / content_hash(place.shown)[:16]
        version, total = opened.state(), opened.count()
        marks = _resumed(opened, staged, version)
        read, after = (marks[-1].read, marks[-1].last) if marks else (0, None)
        with bar(f"read {place.shown}", total, "vector", initial=read) as progress:
            for page in _pages(opened, after):
                read += page.rows
                progress.update(page.rows)
                groups.add(page.payloads)
                if page.keys:
                    if not marks:
                        _template(page, text)
                    require_one_length({page.vectors.shape[1], *(mark.dim for mark in marks[:1])})
                    marks.append(_write(staged, len(marks), page, version, after, read))
                after = page.last
        if (read, opened.state()) != (total, version) or not _is_current(opened, marks):
            shutil.rmtree(staged, ignore_errors=True)
            raise InputError(f"it changed while it was read ({read:,} of {total:,} rows): run this again")
        if not any(mark.usable for mark in marks):
            shutil.rmtree(staged, ignore_errors=True)
            raise InputError(_no_vector(opened))
    _add_missing_columns(sorted(staged.glob("*.parquet")))
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        folder.rmdir()
    shutil.move(staged, folder)
    copied: int = sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))
    if copied < read:
        print(f"{place.shown}: {read - copied:,} rows have no vector and are left out")
    for note in _notes(groups, place):
        print(f"{place.shown}: {note}")
    return copied


@contextmanager
def _reading(url: str, again: str) -> Iterator[tuple[OpenStore, StoreUrl]]:
    """The open database with its URL; faults become one line that begins with it."""
    name, has_scheme, _ = url.partition("://")
    if not has_scheme:
        raise InputError("--index: the URL has no scheme: begin it with qdrant://, postgresql:// or lance://")
    scheme = {"postgres": "postgresql"}.get(name.partition("+")[0], name.partition("+")[0])
    store = find_store(scheme)
    if find_spec(store.package.replace("-", "_")) is None:
        raise InputError(f"--index {scheme}:// needs the package {store.package}: pip install {store.package}")
    place = StoreUrl.parse(url, store)
    fix = "start the database or correct the URL"
    with prefixed_errors(place.shown):
        try:
            with store.opened(place) as opened:
                fix = again
                yield opened, place
        except store.faults() as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise InputError(f"{shown_address(reason)}; {fix}") from None


class _Groups:
    """Counts the values of columns that can separate collections or models in one table, over all rows read."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def add(self, payloads: Iterable[Mapping[str, Any]]) -> None:
        """Count the values of these rows."""
        for payload in payloads:
            for name, value in payload.items():
                counts = self._counts.setdefault(name, Counter())
                if len(counts) <= _MOST_GROUPS and value is not None and _GROUPS.search(name):
                    counts[str(value) if isinstance(value, int | float) else f"'{value}'"] += 1

    def notes(self, where: str) -> list[str]:
        """A line for each such column with several values that is not in the condition `where`."""
        return [
            f"column {name} has {len(counts)} values, such as {' and '.join(list(counts)[:2])}: if these are several "
            f"models or kinds, read one of them with where={quote(f'{name}={next(iter(counts))}', safe=_SAFE)}"
            for name, counts in self._counts.items()
            if 1 < len(counts) <= _MOST_GROUPS and name not in where
        ]


def _notes(groups: _Groups, place: StoreUrl) -> list[str]:
    return groups.notes(place.options.get("where", "")) if "where" in place.store.options else []


def _pages(opened: OpenStore, after: Any) -> Iterator[Page]:
    while (page := opened.page(after, _ROWS)).rows:
        yield page
        after = page.last


def _no_vector(opened: OpenStore) -> str:
    rows = opened.count()
    return f"none of {rows:,} rows has a finite vector: choose another one with vector=" if rows else "it has no rows"


def _template(page: Page, text: str | None) -> TextTemplate:
    """The template of captions; raises InputError if no row of the page has one of its fields."""
    fields = {name for payload in page.payloads for name in payload}
    template = TextTemplate(text or caption_column(fields) or "caption")
    if missing := template.unknown(fields):
        known = ", ".join(sorted(fields)) or "none"
        why = f"no field '{missing[0]}'" if text else f"none of the fields {', '.join(CAPTIONS)}"
        raise InputError(f"{why} for the caption: choose with --text of {known}")
    return template


def _write(staged: Path, number: int, page: Page, version: str, after: Any, read: int) -> _Mark:
    finite = np.isfinite(page.vectors).all(axis=1) & page.vectors.any(axis=1)
    mark = _Mark(version, after, page.last, read, _hash(page), page.vectors.shape[1], int(finite.sum()))
    with atomic_file(staged / f"vectors_{number:06d}.parquet") as temporary:
        table = pa.table(_columns(page))
        pq.write_table(table.replace_schema_metadata({_MARK: json.dumps(asdict(mark))}), temporary)
    return mark


def _columns(page: Page) -> dict[str, pa.Array]:
    """All fields, `key`, the place of the picture as `image_path`, and the vectors."""
    names = dict.fromkeys(name for payload in page.payloads for name in payload if name not in COLUMNS)
    columns = {name: _array([_plain(payload.get(name)) for payload in page.payloads]) for name in names}
    columns.setdefault("key", pa.array(page.keys, pa.string()))
    if picture := next((name for name in _PICTURES if name in names), None):
        places = (payload.get(picture) for payload in page.payloads)
        columns["image_path"] = pa.array(["" if place is None else str(place) for place in places])
    vectors = pa.array(page.vectors.ravel())
    return columns | {COLUMNS[0]: pa.FixedSizeListArray.from_arrays(vectors, page.vectors.shape[1])}


def _plain(value: Any) -> Any:
    """A value as Parquet can hold it; a date, a UUID or a decimal number as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()} or None
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return None if isinstance(value, bytes) else str(value)


def _array(values: Sequence[Any]) -> pa.Array:
    """Values of one column; as texts if they are of several types."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        texts = [one if one is None or isinstance(one, str) else json.dumps(one) for one in values]
        return pa.array(texts, pa.string())


def _add_missing_columns(files: Sequence[Path]) -> None:
    """Give all files the same columns: a field may be in the rows of some pages only."""
    names = dict.fromkeys(name for file in files for name in pq.read_schema(file).names)
    for file in files:
        if missing := [name for name in names if name not in pq.read_schema(file).names]:
            table = pq.read_table(file)
            for name in missing:
                table = table.append_column(name, pa.nulls(len(table)))
            with atomic_file(file) as temporary:
                pq.write_table(table, temporary)


def _hash(page: Page) -> str:
    fields = json.dumps([_plain(dict(payload)) for payload in page.payloads], sort_keys=True)
    return content_hash(*page.keys, fields, page.vectors.tobytes())


def _is_current(opened: OpenStore, marks: Sequence[_Mark]) -> bool:
    """Whether the first, the last and some other copied pages are as they are in the database."""
    step = max(1, len(marks) // _COMPARED)
    return all(_hash(opened.page(mark.after, _ROWS)) == mark.content for mark in (*marks[::step], *marks[-1:]))


def _resumed(opened: OpenStore, staged: Path, version: str) -> list[_Mark]:
    """The pages that an earlier run copied, if the database still has them."""
    marks = [_Mark(**json.loads(pq.read_metadata(file).metadata[_MARK])) for file in sorted(staged.glob("*.parquet"))]
    if not marks or (all(mark.version == version for mark in marks) and _is_current(opened, marks)):
        return marks
    print("the database changed since the last run: it is read from the start")
    shutil.rmtree(staged)
    return []
