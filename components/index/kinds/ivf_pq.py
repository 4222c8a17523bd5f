"""Inverted lists of product-quantised vectors (Jégou et al. 2011) by faiss: a hundred million images on one machine.

A vector takes a byte for each eight of its numbers; lists are memory-mapped. What they find is scored again with the
index's own vectors. An extra, because it is needed beyond what a graph in memory can hold.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from components.core.errors import InputError
from components.core.metrics import Features, Indices
from components.core.progress import bar
from components.index.facts import BUILD_AGAIN
from components.index.kinds.approximate import opened_by
from components.index.kinds.kind import Kind
from components.index.vectors import Vectors

_LEAST = 1_000
"""Rows below which there is nothing to train lists and codes with."""
_PER_CODE = 8
_TRAINED_ON = 64
"""Vectors for each list, at the most, that the lists are trained on."""
_BLOCK = 65_536


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise InputError("--kind ivf_pq needs faiss: pip install 'cliptune[faiss]', or choose usearch") from None
    return faiss


def _require(rows: int) -> None:
    _faiss()
    if rows < _LEAST:
        raise InputError(f"--kind ivf_pq needs {_LEAST} images, there are {rows}: choose exact")


def _codes(dim: int) -> int:
    """Bytes of a code: the most parts of at least eight numbers that a vector can be cut into."""
    return next(parts for parts in range(max(1, dim // _PER_CODE), 0, -1) if dim % parts == 0)


def _trained(vectors: Vectors) -> Any:
    faiss, rows = _faiss(), len(vectors)
    lists = max(1, min(int(4 * math.sqrt(rows)), rows // 39))
    index = faiss.index_factory(vectors.dim, f"IVF{lists},PQ{_codes(vectors.dim)}", faiss.METRIC_INNER_PRODUCT)
    sample = np.linspace(0, rows - 1, min(rows, max(_TRAINED_ON * lists, 20_000)), dtype=np.int64)
    index.train(vectors.take(np.unique(sample)))
    return index


def _write(path: Path, vectors: Vectors, old: Path | None, first: int) -> None:
    faiss = _faiss()
    index = faiss.read_index(str(old)) if old is not None else _trained(vectors)
    with bar("quantise", len(vectors) - first, "vector") as progress:
        for _, block in vectors.blocks(_BLOCK, first):
            index.add(np.ascontiguousarray(block))
            progress.update(len(block))
    faiss.write_index(index, str(path))


class _Lists:
    def __init__(self, path: Path, vectors: Vectors) -> None:
        self._faiss = _faiss()
        try:
            self._index = self._faiss.read_index(str(path), self._faiss.IO_FLAG_MMAP | self._faiss.IO_FLAG_READ_ONLY)
        except RuntimeError as error:
            raise InputError(f"{path} is damaged ({str(error)[:120]}): {BUILD_AGAIN}") from None
        if self._index.ntotal != len(vectors) or self._index.d != vectors.dim:
            raise InputError(f"{path} has not the {len(vectors)} vectors of the index: {BUILD_AGAIN}")

    def __call__(self, queries: Features, count: int, effort: int) -> Indices:
        # Codes are coarse: the further is searched, the more of what is found is scored again.
        wanted = min(4 * count + 8 * effort, self._index.ntotal)
        asked = self._faiss.SearchParametersIVF(nprobe=effort)
        found: Indices = self._index.search(np.ascontiguousarray(queries, np.float32), wanted, params=asked)[1]
        return found


KIND = Kind(
    open=opened_by(_Lists),
    bytes_per_vector=lambda dim: _codes(dim) + 8,
    write=_write,
    efforts=(4, 8, 16, 32, 64, 128, 256, 512),
    require=_require,
)
