"""A file of usearch and a table of texts: `usearch://images.usearch?texts=texts.parquet`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from components.core.system.errors import InputError
from components.vector_stores.store import OpenStore, Page, StoreUrl, VectorStore, matrix


class _IndexFile:
    def __init__(self, index: Any, texts: pa.Table, key: str) -> None:
        self._index, self._texts, self._key = index, texts, key
        rows = {int(found): row for row, found in enumerate(texts[key].to_pylist())}
        self._keys = np.sort(np.asarray(index.keys[: len(index)]))
        if missing := [found for found in self._keys if int(found) not in rows]:
            raise InputError(f"{len(missing):,} keys have no row of texts, such as {missing[0]}")
        self._rows = rows

    def state(self) -> str:
        return str(self.count())

    def count(self) -> int:
        return len(self._keys)

    def page(self, after: Any, rows: int) -> Page:
        start = after or 0
        keys = self._keys[start : start + rows]
        if not len(keys):
            return Page([], [], matrix([]), start)
        payloads = self._texts.take([self._rows[int(key)] for key in keys]).to_pylist()
        vectors = np.asarray(self._index.get(keys), np.float32).reshape(len(keys), -1)
        return Page([str(key) for key in keys], payloads, vectors, start + len(keys))


@contextmanager
def _opened(url: StoreUrl) -> Iterator[OpenStore]:
    from usearch.index import Index

    path, texts, key = (
        Path(url.parts.netloc + url.parts.path),
        url.options.get("texts"),
        url.options.get("key", "key"),
    )
    if texts is None:
        raise InputError("give the texts: ?texts=FILE.parquet with a column `key`, or ?key=COLUMN")
    for file in (path, Path(texts)):
        if not file.is_file():
            raise InputError(f"{file} is missing")
    table = pq.read_table(texts)
    if key not in table.column_names:
        raise InputError(f"{texts} has no column '{key}': its columns are {', '.join(table.column_names)}")
    index = Index.restore(str(path), view=True)
    if index is None:
        raise InputError(f"{path} is not a file of usearch")
    yield _IndexFile(index, table, key)


def _faults() -> tuple[type[Exception], ...]:
    return (OSError, RuntimeError, ValueError, pa.ArrowException)


STORE = VectorStore(
    package="usearch",
    example="usearch://data/images.usearch?texts=data/texts.parquet",
    options=("texts", "key"),
    opened=_opened,
    faults=_faults,
)
