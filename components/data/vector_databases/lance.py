"""LanceDB: `lance://folder/table`, or `lance:///absolute/folder/table`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from components.core.system.errors import InputError
from components.data.vector_databases.store import OpenStore, Page, StoreUrl, VectorStore

_FAULTS = (OSError, RuntimeError, ValueError)


class _LanceTable:
    """A table at one version, without the rows that others write meanwhile."""

    def __init__(self, table: Any, options: Mapping[str, str]) -> None:
        self._table, schema = table, table.schema
        table.checkout(table.version)
        lists = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
        self._vector = options.get("vector") or (lists[0] if len(lists) == 1 else "")
        if self._vector not in lists:
            raise InputError(f"its columns of vectors are {', '.join(lists) or 'none'}: choose with vector=COLUMN")
        self._others = [field.name for field in schema if field.name not in lists and not _is_bytes(field.type)]
        self._key = options.get("key") or next((name for name in ("id", "key") if name in self._others), "")
        if self._key and self._key not in self._others:
            raise InputError(f"no column '{self._key}': its columns are {', '.join(self._others)}")
        self._where = options.get("where")
        try:
            self._count = int(table.count_rows(self._where))
        except _FAULTS as error:
            raise InputError(f"where={self._where}: {' '.join(str(error).split())[:200]}") from None

    def count(self) -> int:
        return self._count

    def page(self, after: Any, rows: int) -> Page:
        start = after or 0
        query = self._table.search().select([self._vector, *self._others]).limit(rows).offset(start)
        found = (query if self._where is None else query.where(self._where)).to_arrow()
        payloads = found.select(self._others).to_pylist()
        keys = [str(payload.get(self._key, start + number)) for number, payload in enumerate(payloads)]
        return Page.of(keys, payloads, found[self._vector].to_pylist(), start + len(keys))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


@contextmanager
def _opened(url: StoreUrl) -> Iterator[OpenStore]:
    import lancedb

    place = Path(url.parts.netloc + url.parts.path)
    if not (place.parent / f"{place.name}.lance").is_dir():
        known = sorted(path.stem for path in place.parent.glob("*.lance"))
        raise InputError(f"no table '{place.name}': choose of {', '.join(known) or 'none'}")
    yield _LanceTable(lancedb.connect(place.parent).open_table(place.name), url.options)


STORE = VectorStore(
    package="lancedb",
    example="lance://data/lance/images",
    options=("vector", "key", "where"),
    opened=_opened,
    faults=lambda: _FAULTS,
)
