"""Every vector is looked at: no file beside the vectors, nothing to tune, and all that there is to find is found."""

from __future__ import annotations

from pathlib import Path

from components.core.metrics import Features, Indices
from components.index.exact_search import Found, search_exact
from components.index.kinds.kind import Kind
from components.index.vectors import Vectors


class _Exact:
    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors

    def search(self, queries: Features, k: int, effort: int, rows: Indices | None = None) -> Found:
        """See `Searcher`."""
        return search_exact(self._vectors, queries, k, rows)


def _open(_path: Path | None, vectors: Vectors) -> _Exact:
    return _Exact(vectors)


KIND = Kind(open=_open, bytes_per_vector=lambda _dim: 0, auto_from=0)
