"""A graph of near vectors (HNSW, Malkov and Yashunin 2016) by usearch, with copies of the vectors in bytes.

Text queries lie outside of the cone of the image vectors, so that a graph must be searched further for them than for
images; how far is measured when the index is built.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from usearch.index import BatchMatches, Index

from components.core.errors import InputError
from components.core.metrics import Features, Indices
from components.core.progress import bar
from components.index.facts import BUILD_AGAIN
from components.index.kinds.approximate import opened_by
from components.index.kinds.kind import Kind
from components.index.vectors import Vectors

_LINKS, _BUILD_EFFORT = 16, 128
_BLOCK = 8192
_ROOM, _SHARE = 4, 8
"""How many times the rows that are wanted are scored with the index's own vectors, and of which share of the effort as
many more: bytes are coarse, and a larger effort is to make up for that, too."""


def _write(path: Path, vectors: Vectors, old: Path | None, first: int) -> None:
    index = Index(
        ndim=vectors.dim, metric="ip", dtype="i8", connectivity=_LINKS, expansion_add=_BUILD_EFFORT,
        enable_key_lookups=False,
    )  # fmt: skip
    if old is not None:
        index.load(str(old))
        index.expansion_add = _BUILD_EFFORT
    threads = len(os.sched_getaffinity(0))
    with bar("build graph", len(vectors) - first, "vector") as progress:
        for start, block in vectors.blocks(_BLOCK, first):
            index.add(np.arange(start, start + len(block)), block, threads=threads)
            progress.update(len(block))
    index.save(str(path))


class _Graph:
    def __init__(self, path: Path, vectors: Vectors) -> None:
        try:
            found = Index.restore(str(path), view=True, enable_key_lookups=False)
        except (RuntimeError, ValueError, OSError) as error:
            raise InputError(f"{path} is damaged ({error}): {BUILD_AGAIN}") from None
        if found is None or len(found) != len(vectors) or found.ndim != vectors.dim:
            raise InputError(f"{path} is no graph of the {len(vectors)} vectors of the index: {BUILD_AGAIN}")
        self._index = found

    def __call__(self, queries: Features, count: int, effort: int) -> Indices:
        wanted = min(_ROOM * count + effort // _SHARE, len(self._index))
        # One number for all searches: it is set again only where another is wanted.
        if self._index.expansion_search != effort:
            self._index.expansion_search = effort
        found = self._index.search(queries, wanted, threads=min(len(queries), len(os.sched_getaffinity(0))))
        keys = np.asarray(found.keys, np.int64).reshape(len(queries), -1)
        full = np.full((len(queries), wanted), -1, np.int64)
        full[:, : keys.shape[1]] = keys
        counts = found.counts if isinstance(found, BatchMatches) else np.full(len(queries), keys.shape[1])
        full[np.arange(wanted) >= np.asarray(counts)[:, None]] = -1
        return full


KIND = Kind(
    open=opened_by(_Graph),
    # Two numbers for each link of the lowest level, where vectors have twice the links, its head and its key.
    bytes_per_vector=lambda dim: dim + 4 * (2 * _LINKS + 1) + 18,
    write=_write,
    efforts=(32, 64, 128, 256, 512, 1024, 2048),
    auto_from=1_000_001,
)
