"""Copies the vectors and texts of a database into a folder that source `embeddings` reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.pictures.embedding_files import CAPTIONS, caption_column
from components.core.system.errors import InputError, prefixed_errors
from components.core.system.progress import bar
from components.core.tables.files import atomic_file, content_hash
from components.data.text_template import TextTemplate
from components.vector_stores import find_store
from components.vector_stores.store import OpenStore, Page, StoreUrl

STATE = Path("state/vector_stores")
_PICTURES = ("image_path", "path", "file", "filename", "url", "image_url", "image")
"""Names of fields with the place of a picture, in order of precedence."""
_ROWS = 1000
"""Rows of a page, which memory holds."""
_SHOWN = 3
_MARK, _USABLE = b"mark", b"usable"
"""Metadata of a page's file: where the next page begins, and its number of usable rows."""


@dataclass(frozen=True)
class FirstRows:
    """The content of a database, by its first page: `fields` have the first value of each."""

    rows: int
    dim: int
    fields: Mapping[str, Any]
    captions: Sequence[str]


def look(url: str, text: str | None = None) -> FirstRows:
    """Read the first page; raises as `copy`."""
    with _reading(url) as (opened, _):
        page = opened.page(None, _ROWS)
        columns = _Columns.of(page, text)
        fields = dict(page.payloads[0])
        captions = [columns.row(payload)["caption"] for payload in page.payloads[:_SHOWN]]
        return FirstRows(opened.count(), page.vectors.shape[1], fields, captions)


def copy(url: str, folder: Path, text: str | None = None, state: Path = STATE) -> int:
    """Write the rows of a database as Parquet files into a new folder; returns their number.

    Pages are kept in `state` until the last one, so that a stopped copy resumes. Nothing is written to the
    database.

    Args:
        text: the caption as a column, several, or a template; by default the first of `caption`, `text`, `title`.

    Raises:
        InputError: the URL is wrong, the database cannot be read, has no usable rows, or changed meanwhile; or the
            folder has files.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(f"{folder} has files: name a new folder for the vectors")
    with _reading(url) as (opened, shown):
        staged = state / content_hash(shown, text or "")[:16]
        version, total = opened.state(), opened.count()
        copied, after, part = _resumed(staged, version)
        columns = _Columns.of(opened.page(None, _ROWS), text)
        with bar(f"read {shown}", total, "vector", initial=copied) as progress:
            while len((page := opened.page(after, _ROWS)).keys):
                after = page.last
                _write(staged / f"vectors_{part:06d}.parquet", page, columns, {"last": after, "version": version})
                copied, part = copied + len(page.keys), part + 1
                progress.update(len(page.keys))
        if (copied, opened.state()) != (total, version):
            shutil.rmtree(staged)
            raise InputError(f"it changed while it was read ({copied:,} of {total:,} rows): run this again")
        if not any(pq.read_metadata(file).metadata[_USABLE] != b"0" for file in staged.glob("*.parquet")):
            shutil.rmtree(staged)
            raise InputError("no row has a caption and a finite vector: look at the rows with --dry-run")
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.exists():
        folder.rmdir()
    shutil.move(staged, folder)
    return copied


@contextmanager
def _reading(url: str) -> Iterator[tuple[OpenStore, str]]:
    """The open database with its URL; faults become one line that begins with it."""
    scheme = url.partition("://")[0].partition("+")[0]
    store = find_store(scheme)
    if find_spec(store.package.replace("-", "_")) is None:
        raise InputError(f"--index {scheme}:// needs the package {store.package}: pip install {store.package}")
    place = StoreUrl.parse(url, store.options)
    with prefixed_errors(place.shown):
        try:
            with store.opened(place) as opened:
                yield opened, place.shown
        except InputError:
            raise
        except store.faults() as error:
            reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise InputError(f"{reason}; repair it and run this again: the copy resumes") from None


class _Columns:
    """Which fields of a row become its caption and the place of its picture."""

    def __init__(self, template: TextTemplate, picture: str | None) -> None:
        self._template, self._picture = template, picture

    @classmethod
    def of(cls, page: Page, text: str | None) -> _Columns:
        if not page.keys:
            raise InputError("it has no rows")
        fields = {name for payload in page.payloads for name in payload}
        template = TextTemplate(text or caption_column(fields) or "caption")
        if missing := [name for name in template.columns if name not in fields]:
            known = ", ".join(sorted(fields)) or "none"
            why = f"no field '{missing[0]}'" if text else f"none of the fields {', '.join(CAPTIONS)}"
            raise InputError(f"{why} for the caption: choose with --text of {known}")
        return cls(template, next((name for name in _PICTURES if name in fields), None))

    def row(self, payload: Mapping[str, Any]) -> dict[str, str]:
        picture = payload.get(self._picture) if self._picture else None
        return {"caption": self._template.of(payload), "image_path": "" if picture is None else str(picture)}


def _write(file: Path, page: Page, columns: _Columns, mark: Mapping[str, Any]) -> None:
    rows = [{"key": key} | columns.row(payload) for key, payload in zip(page.keys, page.payloads, strict=True)]
    table = pa.Table.from_pylist(rows, pa.schema([(name, pa.string()) for name in ("key", "caption", "image_path")]))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(page.vectors.ravel()), page.vectors.shape[1])
    captioned = np.array([bool(row["caption"]) for row in rows])
    usable = (captioned & np.isfinite(page.vectors).all(axis=1) & page.vectors.any(axis=1)).sum()
    table = table.append_column("embedding", vectors)
    with atomic_file(file) as temporary:
        pq.write_table(table.replace_schema_metadata({_MARK: json.dumps(mark), _USABLE: str(usable)}), temporary)


def _resumed(staged: Path, version: str) -> tuple[int, Any, int]:
    """Rows and pages that an earlier run copied, and the key before the next page."""
    files = sorted(staged.glob("vectors_*.parquet"))
    if not files:
        return 0, None, 0
    mark = json.loads(pq.read_metadata(files[-1]).metadata[_MARK])
    if mark["version"] != version:
        print("the database changed since the last run: it is read from the start")
        shutil.rmtree(staged)
        return 0, None, 0
    return sum(pq.read_metadata(file).num_rows for file in files), mark["last"], len(files)
