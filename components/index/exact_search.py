"""Exact search: the k best rows of an index for each query, from the cosines with every vector."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from components.core.compute.metrics import Features, Indices, best_columns
from components.core.system.errors import InputError
from components.index.vectors import Vectors

_CELLS = 1 << 24
"""Similarities that are held in memory at once: 64 MB."""
_QUERIES = 1024
"""Queries of one pass over the vectors."""
_DENSE = 8
"""A filter that keeps at least one row in so many masks similarities; a sparser one selects vectors first."""


class Found(NamedTuple):
    """The best rows of each query, the best first; ties go to the earlier row.

    Attributes:
        scores: cosines `[queries, k]`; minus infinity where there are fewer than k rows.
        rows: their numbers `[queries, k]`; -1 where there are fewer than k rows.
    """

    scores: Features
    rows: Indices


def search_exact(vectors: Vectors, queries: Features, k: int, rows: Indices | None = None) -> Found:
    """The k most similar of all vectors, or of those whose numbers are given in ascending order.

    Args:
        queries: `[queries, dim]`, finite.

    Raises:
        InputError: a vector is not finite.
    """
    parts = [_search(vectors, queries[at : at + _QUERIES], k, rows) for at in range(0, len(queries), _QUERIES)]
    if not parts:
        return nothing(0, k)
    return Found(np.concatenate([part.scores for part in parts]), np.concatenate([part.rows for part in parts]))


def nothing(queries: int, k: int) -> Found:
    """The result of a search without rows."""
    return Found(np.full((queries, k), -np.inf, np.float32), np.full((queries, k), -1, np.int64))


def merged(scores: Features, rows: Indices, k: int) -> Found:
    """The k best `[queries, k]` of candidates `[queries, any]`; a score of minus infinity marks none."""
    rows = np.where(np.isneginf(scores), -1, rows)
    order = np.lexsort((rows, -scores), axis=-1)[:, :k]
    best = Found(np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1))
    padding = nothing(len(scores), max(0, k - best.rows.shape[1]))
    return Found(np.hstack([best.scores, padding.scores]), np.hstack([best.rows, padding.rows]))


def _search(vectors: Vectors, queries: Features, k: int, rows: Indices | None) -> Found:
    best, most = nothing(len(queries), k), _CELLS // len(queries)
    if rows is not None and len(rows) * _DENSE < len(vectors):
        most = min(most, _CELLS // vectors.dim)
        for at in range(0, len(rows), most):
            chosen = rows[at : at + most]
            best = _better(best, queries @ vectors.take(chosen).T, chosen, k)
        return best
    for start, block in vectors.blocks(most):
        similarity, numbers = queries @ block.T, np.arange(start, start + len(block))
        if rows is not None:
            keep = np.zeros(len(block), np.bool_)
            keep[rows[slice(*np.searchsorted(rows, (start, start + len(block))))] - start] = True
            similarity[:, ~keep] = -np.inf
        best = _better(best, similarity, numbers, k)
    return best


def _better(best: Found, similarity: Features, numbers: Indices, k: int) -> Found:
    """The best of `best` and of a block's similarities `[queries, block]`, whose rows are `numbers`."""
    if np.isnan(similarity).any():
        row = int(numbers[np.isnan(similarity).any(axis=0)][0])
        raise InputError(f"the vector of row {row} is not finite: `cliptune index check` names its file")
    columns = best_columns(similarity, min(k, similarity.shape[1]))
    scores = np.take_along_axis(similarity, columns, axis=1)
    return merged(np.hstack([best.scores, scores]), np.hstack([best.rows, numbers[columns]]), k)
