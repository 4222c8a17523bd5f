"""What approximate kinds share: candidates from their own file are scored again with the index's vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from components.core.metrics import Features, Indices
from components.index.exact_search import Found, merged, search_exact
from components.index.vectors import Vectors

_FEW = 20_000
"""Rows of a filter that are searched exactly at once."""
_ROOM, _MOST = 2, 20_000
"""How many times the candidates that a filter should leave are asked for, and how many are at the most."""


class Candidates(Protocol):
    """Finds rows that may be among the best."""

    def __call__(self, queries: Features, count: int, effort: int) -> Indices:
        """At least `count` row numbers for each query `[queries, any]`; -1 where there are not so many."""


def opened_by(read: Callable[[Path, Vectors], Candidates]) -> Callable[[Path | None, Vectors], Approximate]:
    """`Kind.open` of an approximate kind, whose candidates come from the file that it wrote."""

    def open_(path: Path | None, vectors: Vectors) -> Approximate:
        assert path is not None
        return Approximate(vectors, read(path, vectors))

    return open_


class Approximate:
    """Searches by candidates; scores are those of exact search."""

    def __init__(self, vectors: Vectors, candidates: Candidates) -> None:
        self._vectors, self._candidates = vectors, candidates

    def search(self, queries: Features, k: int, effort: int, rows: Indices | None = None) -> Found:
        """See `Searcher`; what a filter leaves too little of is searched exactly."""
        if rows is None:
            return self._scored(queries, self._candidates(queries, min(k, len(self._vectors)), effort), k)
        wanted = _ROOM * k * len(self._vectors) // max(1, len(rows))
        if len(rows) <= max(k, _FEW) or wanted > _MOST:
            return search_exact(self._vectors, queries, k, rows)
        candidates = self._candidates(queries, wanted, effort)
        places = np.minimum(np.searchsorted(rows, candidates), len(rows) - 1)
        candidates = np.where(rows[places] == candidates, candidates, -1)
        if ((candidates >= 0).sum(axis=1) < k).any():
            return search_exact(self._vectors, queries, k, rows)
        return self._scored(queries, candidates, k)

    def _scored(self, queries: Features, candidates: Indices, k: int) -> Found:
        known = np.unique(candidates[candidates >= 0])
        vectors = self._vectors.take(known)
        scores = np.full(candidates.shape, -np.inf, np.float32)
        for query, rows in enumerate(candidates):
            there = rows >= 0
            scores[query, there] = vectors[np.searchsorted(known, rows[there])] @ queries[query]
        return merged(scores, candidates, k)
