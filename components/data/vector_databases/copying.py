"""Copies the vectors and fields of a database into a folder that source `embeddings` reads."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.pictures.embedding_files import CAPTIONS, COLUMNS
from components.core.system.errors import InputError, prefixed_errors, shown_address
from components.core.system.progress import bar
from components.core.tables.files import atomic_folder, content_hash
from components.data.text_template import TextTemplate
from components.data.vector_databases import find_store
from components.data.vector_databases.store import OpenStore, Page, StoreUrl, require_one_length

_PICTURES = ("image_path", "path", "file", "filename", "url", "image_url", "image")
"""Names of fields with the place of a picture, in order of precedence."""
_ROWS = 1000
"""Rows of a page, which memory holds."""
_LOOKED_AT = 10
"""Pages that `look` reads, or more until one has a vector."""
_COMPARED = 8
"""Pages of a copy, about, that are read again at its end to see whether the database has changed."""
_SHOWN = 3
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


def look(url: str, text: str | None = None) -> FirstRows:
    """Read the first pages; raises as `copy`."""
    with _reading(url, "run this again") as (opened, place):
        groups, fields, captions, dim = _Groups(), dict[str, None](), list[str](), 0
        for number, page in enumerate(_pages(opened), 1):
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


def copy(url: str, folder: Path, text: str | None = None) -> int:
    """Write the rows of a database that have vectors, with all their fields, as Parquet files into a new folder.

    The folder appears whole at the end. Nothing is written to the database.

    Args:
        text: `prepare.text` of the copy, of which no field may be missing.

    Returns:
        The number of rows.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} has files: name a new folder for the vectors")
    groups, hashes, read, copied, dim, has_finite = _Groups(), list[tuple[Any, str]](), 0, 0, 0, False
    with _reading(url, "run this again") as (opened, place), atomic_folder(folder) as staged:
        total, after = opened.count(), None
        with bar(f"read {place.shown}", total, "vector") as progress:
            for page in _pages(opened):
                read += page.rows
                progress.update(page.rows)
                groups.add(page.payloads)
                if page.keys:
                    if not copied:
                        _template(page, text)
                        dim = page.vectors.shape[1]
                    require_one_length({dim, page.vectors.shape[1]})
                    has_finite |= bool((np.isfinite(page.vectors).all(axis=1) & page.vectors.any(axis=1)).any())
                    pq.write_table(pa.table(_columns(page)), staged / f"vectors_{len(hashes):06d}.parquet")
                    hashes.append((after, _hash(page)))
                    copied += len(page.keys)
                after = page.last
        if read != total or not _is_current(opened, hashes):
            raise InputError(f"it changed while it was read ({read:,} of {total:,} rows): run this again")
        if not has_finite:
            raise InputError(_no_vector(opened))
        _add_missing_columns(sorted(staged.iterdir()))
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


def _pages(opened: OpenStore) -> Iterator[Page]:
    after = None
    while (page := opened.page(after, _ROWS)).rows:
        yield page
        after = page.last


def _no_vector(opened: OpenStore) -> str:
    rows = opened.count()
    return f"none of {rows:,} rows has a finite vector: choose another one with vector=" if rows else "it has no rows"


def _template(page: Page, text: str | None) -> TextTemplate:
    """The template of captions; raises InputError if no row of the page has one of its fields."""
    fields = {name for payload in page.payloads for name in payload}
    template = TextTemplate(text or next((name for name in CAPTIONS if name in fields), "caption"))
    if missing := template.unknown(fields):
        known = ", ".join(sorted(fields)) or "none"
        why = f"no field '{missing[0]}'" if text else f"none of the fields {', '.join(CAPTIONS)}"
        raise InputError(f"{why} for the caption: choose with --text of {known}")
    return template


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
            pq.write_table(table, file)


def _hash(page: Page) -> str:
    fields = json.dumps([_plain(dict(payload)) for payload in page.payloads], sort_keys=True)
    return content_hash(*page.keys, fields, page.vectors.tobytes())


def _is_current(opened: OpenStore, hashes: Sequence[tuple[Any, str]]) -> bool:
    """Whether the first, the last and some other copied pages are as they are in the database.

    Args:
        hashes: of each page, the key before it and its hash.
    """
    step = max(1, len(hashes) // _COMPARED)
    return all(_hash(opened.page(after, _ROWS)) == content for after, content in (*hashes[::step], *hashes[-1:]))
