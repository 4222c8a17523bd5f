"""Exact search, and approximate search of many images by FAISS: memory-mapped inverted lists of product-quantised
vectors (Jégou et al. 2011), one byte for every eight numbers. Its candidates are rescored with the index's vectors.

Texts and images are in two separate cones of the space (the modality gap, Liang et al. 2022). Text queries therefore
need more probes than image queries; `components.index.tuning` measures how many.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import faiss
import numpy as np

from components.core.compute.devices import FeatureGallery, Values, fetched, library, taken
from components.core.compute.metrics import Features, Indices, top_columns
from components.core.system.errors import InputError
from components.core.system.progress import bar
from components.index.facts import BUILD_AGAIN
from components.index.vectors import Vectors

_CELLS = 1 << 24
"""Similarities that are held in memory at once: 64 MB."""
_QUERIES = 1024
"""Queries of one pass over the vectors."""
EFFORTS = (4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of lists that may be probed, ascending."""
_FEWEST_ROWS = 1_000
"""Images needed to train the lists and the codes."""
_BLOCK = 65_536
_EXACT_BELOW = 20_000
"""A filter that keeps at most so many rows is searched exactly."""
_MARGIN, _MOST_CANDIDATES = 2, 20_000
"""With a filter, so many times the expected candidates are requested, and at most so many."""


class Found(NamedTuple):
    """The best rows of each query, the best first; ties go to the earlier row.

    Attributes:
        scores: cosines `[queries, k]`; minus infinity where there are fewer than k rows.
        rows: their numbers `[queries, k]`; -1 where there are fewer than k rows.
    """

    scores: Features
    rows: Indices


def search_exact(vectors: Vectors, queries: Features, k: int, rows: Indices | None = None) -> Found:
    """The k vectors most similar to each of `queries` `[queries, dim]`, of all or of ascending row numbers."""
    parts = [_search(vectors, queries[at : at + _QUERIES], k, rows) for at in range(0, len(queries), _QUERIES)]
    if not parts:
        return nothing(0, k)
    return Found(np.concatenate([part.scores for part in parts]), np.concatenate([part.rows for part in parts]))


def nothing(queries: int, k: int) -> Found:
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
    if rows is not None:
        most = min(most, _CELLS // vectors.dim)
        parts = (rows[at : at + most] for at in range(0, len(rows), most))
        blocks = ((part, _compared(vectors, queries, part)) for part in parts)
    elif vectors.gallery is not None:
        numbered = np.split(np.arange(len(vectors)), range(most, len(vectors), most))
        blocks = ((part, vectors.gallery.similarities(queries, slice(part[0], part[-1] + 1))) for part in numbered)
    else:
        read = vectors.blocks(most)
        blocks = (
            (np.arange(at, at + len(block)), FeatureGallery(block, "cpu").similarities(queries)) for at, block in read
        )
    for numbers, similarity in blocks:
        best = _better(best, similarity, numbers, k)
    return best


def _compared(vectors: Vectors, queries: Features, rows: Indices) -> Values:
    if vectors.gallery is not None:
        return vectors.gallery.similarities(queries, rows)
    return FeatureGallery(vectors.take(rows), "cpu").similarities(queries)


def _better(best: Found, similarity: Values, numbers: Indices, k: int) -> Found:
    """The best of `best` and of a block's similarities `[queries, block]`, whose rows are `numbers`."""
    damaged = fetched(library(similarity).isnan(similarity).any(axis=0))
    if damaged.any():
        raise InputError(
            f"the vector of row {numbers[damaged][0]} is not finite: `cliptune index check` names its file"
        )
    on_device = top_columns(similarity, min(k, similarity.shape[1]))
    columns, scores = fetched(on_device), fetched(taken(similarity, on_device))
    return merged(np.hstack([best.scores, scores]), np.hstack([best.rows, numbers[columns]]), k)


def check_rows(rows: int) -> None:
    """Raise `InputError` where there are too few images for this search."""
    if rows < _FEWEST_ROWS:
        raise InputError(f"--kind ivf_pq needs at least {_FEWEST_ROWS} images, there are {rows}: use --kind exact")


def bytes_per_vector(dim: int) -> int:
    """Size of a vector of `dim` numbers in the lists: its code and its row number."""
    return _code_size(dim) + 8


def _code_size(dim: int) -> int:
    """The most equal parts of at least eight numbers that a vector can be split into; one byte for each."""
    return next(parts for parts in range(max(1, dim // 8), 0, -1) if dim % parts == 0)


def write_lists(path: Path, vectors: Vectors, previous: Path | None, first: int) -> None:
    """Write the lists of all vectors; with a `previous` file, only the rows from `first` on are added to it."""
    index = faiss.read_index(str(previous)) if previous is not None else _trained(vectors)
    with bar("quantise", len(vectors) - first, "vector") as progress:
        for _, block in vectors.blocks(_BLOCK, first):
            index.add(np.ascontiguousarray(block))
            progress.update(len(block))
    faiss.write_index(index, str(path))


def _trained(vectors: Vectors) -> faiss.Index:
    rows = len(vectors)
    lists = max(1, min(int(4 * math.sqrt(rows)), rows // 39))
    # np: no polysemous codes, which take long to train and are not used here.
    factory = f"IVF{lists},PQ{_code_size(vectors.dim)}np"
    index = faiss.index_factory(vectors.dim, factory, faiss.METRIC_INNER_PRODUCT)
    sample = np.linspace(0, rows - 1, min(rows, max(64 * lists, 20_000)), dtype=np.int64)
    index.train(vectors.take(np.unique(sample)))
    return index


class ApproximateSearch:
    """Searches the lists in `path`; several threads may search at the same time."""

    def __init__(self, path: Path, vectors: Vectors) -> None:
        self._vectors = vectors
        try:
            self._index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        except RuntimeError as error:
            raise InputError(f"{path} is damaged ({str(error)[:120]}): {BUILD_AGAIN}") from None
        if self._index.ntotal != len(vectors) or self._index.d != vectors.dim:
            raise InputError(f"{path} does not fit the {len(vectors)} vectors of the index: {BUILD_AGAIN}")

    def search(self, queries: Features, k: int, effort: int, rows: Indices | None = None) -> Found:
        """The k best rows for each of the unit `queries` `[queries, dim]`, or of the given ascending `rows`."""
        if rows is None:
            return self._scored(queries, self._candidates(queries, min(k, len(self._vectors)), effort), k)
        wanted = _MARGIN * k * len(self._vectors) // max(1, len(rows))
        if len(rows) <= max(k, _EXACT_BELOW) or wanted > _MOST_CANDIDATES:
            return search_exact(self._vectors, queries, k, rows)
        candidates = self._candidates(queries, wanted, effort)
        places = np.minimum(np.searchsorted(rows, candidates), len(rows) - 1)
        candidates = np.where(rows[places] == candidates, candidates, -1)
        if ((candidates >= 0).sum(axis=1) < k).any():
            return search_exact(self._vectors, queries, k, rows)
        return self._scored(queries, candidates, k)

    def _candidates(self, queries: Features, count: int, effort: int) -> Indices:
        """At least `count` row numbers for each query `[queries, any]`; -1 where there are fewer."""
        # Codes are coarse: the more lists are probed, the more candidates are rescored.
        wanted = min(4 * count + 8 * effort, self._index.ntotal)
        parameters = faiss.SearchParametersIVF(nprobe=effort)  # type: ignore[call-arg]
        rows: Indices = self._index.search(np.ascontiguousarray(queries, np.float32), wanted, params=parameters)[1]
        return rows

    def _scored(self, queries: Features, candidates: Indices, k: int) -> Found:
        distinct = np.unique(candidates[candidates >= 0])
        vectors = self._vectors.take(distinct)
        scores = np.full(candidates.shape, -np.inf, np.float32)
        for query, rows in enumerate(candidates):
            valid = rows >= 0
            scores[query, valid] = vectors[np.searchsorted(distinct, rows[valid])] @ queries[query]
        return merged(scores, candidates, k)
