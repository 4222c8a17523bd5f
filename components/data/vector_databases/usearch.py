"""A file of usearch and a table of texts: `usearch://images.usearch?texts=texts.parquet`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.system.errors import InputError
from components.data.vector_databases.store import OpenStore, Page, StoreUrl, VectorStore


class _IndexFile:
    """The vectors of an index file, each with all rows of texts that have its key."""

    def __init__(self, index: Any, texts: pa.Table, keys: Sequence[int], files: Sequence[Path]) -> None:
        self._index, self._texts, self._files = index, texts, files
        if index.multi:
            raise InputError("keys may have several vectors (multi=True), of which none is that of a row of texts")
        rows: defaultdict[int, list[int]] = defaultdict(list)
        for row, key in enumerate(keys):
            rows[key].append(row)
        known = np.sort(np.asarray(index.keys[: len(index)]))
        if missing := [key for key in known if int(key) not in rows]:
            raise InputError(f"{len(missing):,} keys have no row of texts, such as {missing[0]}")
        self._rows = [(int(key), row) for key in known for row in rows[int(key)]]

    def state(self) -> str:
        return " ".join(f"{stat.st_size} {stat.st_mtime_ns}" for stat in (file.stat() for file in self._files))

    def count(self) -> int:
        return len(self._rows)

    def page(self, after: Any, rows: int) -> Page:
        start = after or 0
        part = self._rows[start : start + rows]
        if not part:
            return Page.of([], [], [], start)
        keys = np.array([key for key, _ in part], np.uint64)
        vectors = list(np.asarray(self._index.get(keys), np.float32).reshape(len(part), -1))
        payloads = self._texts.take([row for _, row in part]).to_pylist()
        return Page.of([str(key) for key, _ in part], payloads, vectors, start + len(part))


def _keys(texts: str, table: pa.Table, column: str) -> list[int]:
    if column not in table.column_names:
        raise InputError(f"{texts} has no column '{column}': its columns are {', '.join(table.column_names)}")
    given = table[column]
    if given.null_count:
        raise InputError(f"{texts}: {given.null_count:,} rows have no {column}: write it, or remove them")
    try:
        return [int(key) for key in given.to_pylist()]
    except (TypeError, ValueError):
        raise InputError(f"{texts}: column '{column}' is not of numbers, which keys of usearch are") from None


@contextmanager
def _opened(url: StoreUrl) -> Iterator[OpenStore]:
    from usearch.index import Index

    path, texts = Path(url.parts.netloc + url.parts.path), url.options.get("texts")
    if texts is None:
        raise InputError("give the texts: ?texts=FILE.parquet with a column `key`, or key=COLUMN")
    files = path, Path(texts)
    for file in files:
        if not file.is_file():
            raise InputError(f"{file} is missing")
    table = pq.read_table(texts)
    keys = _keys(texts, table, url.options.get("key", "key"))
    index = Index.restore(str(path), view=True)
    if index is None:
        raise InputError(f"{path} is not a file of usearch")
    yield _IndexFile(index, table, keys, files)


def _faults() -> tuple[type[Exception], ...]:
    return (OSError, RuntimeError, ValueError, pa.ArrowException)


STORE = VectorStore(
    package="usearch",
    example="usearch://data/images.usearch?texts=data/texts.parquet",
    options=("texts", "key"),
    opened=_opened,
    faults=_faults,
)
