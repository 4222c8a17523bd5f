"""The vectors of an index: segments on disk, memory-mapped, read in blocks or row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from components.core.compute.devices import FeatureGallery, fits
from components.core.compute.metrics import Features, Indices
from components.core.system.errors import InputError
from components.core.tables.arrays import mapped_array, rows_of
from components.core.tables.files import atomic_file
from components.index.facts import BUILD_AGAIN, Facts, refuse_link, vectors_file

_TYPE = np.dtype("<f4")


def not_unit(vectors: Features) -> Indices:
    """Rows of vectors `[rows, dim]` that are not finite or do not have length one."""
    return np.flatnonzero(~(np.abs(np.linalg.norm(vectors, axis=1) - 1) <= 1e-3))


def open_segment(path: Path, rows: int, dim: int) -> Features:
    """A segment's vectors `[rows, dim]`, memory-mapped."""
    refuse_link(path)
    array = mapped_array(path, BUILD_AGAIN)
    if array.dtype != _TYPE or array.shape != (rows, dim) or not array.flags.c_contiguous:
        order = "" if array.flags.c_contiguous else " column by column"
        raise InputError(
            f"{path} holds {array.dtype} of shape {array.shape}{order}, index.json lists {_TYPE} of shape "
            f"{(rows, dim)}: {BUILD_AGAIN}"
        )
    return array


class Vectors:
    """Unit vectors `[rows, dim]` in several files; row numbers continue from file to file."""

    def __init__(self, segments: Sequence[Features], dim: int) -> None:
        self._segments = list(segments)
        self._starts = np.cumsum([0, *map(len, self._segments)])
        self.dim = dim
        self.gallery: FeatureGallery | None = None

    @staticmethod
    def open(folder: Path, facts: Facts) -> Vectors:
        """The vectors of an index; raises as `open_segment`."""
        counts = enumerate(segment.rows for segment in facts.segments)
        return Vectors([open_segment(vectors_file(folder, n), rows, facts.dim) for n, rows in counts], facts.dim)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def blocks(self, most: int, first: int = 0) -> Iterator[tuple[int, Features]]:
        """Blocks of up to `most` vectors from row `first` on, each with the number of its first row."""
        for start, segment in zip(self._starts, self._segments, strict=False):
            for inside in range(max(0, first - int(start)), len(segment), most):
                yield int(start) + inside, segment[inside : inside + most]

    def to(self, device: str) -> None:
        """Copy all vectors to a GPU, if they fit: exact search compares them there."""
        if device != "cpu" and len(self) and fits(_TYPE.itemsize * len(self) * self.dim, device):
            self.gallery = FeatureGallery(np.concatenate(self._segments), device)

    def take(self, rows: Indices) -> Features:
        """Vectors `[len(rows), dim]` by valid row numbers."""
        found = np.empty((len(rows), self.dim), np.float32)
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for owner in np.unique(owners):
            inside = owners == owner
            found[inside] = rows_of(self._segments[owner], rows[inside] - self._starts[owner])
        return found


@contextmanager
def growing_array(path: Path, dim: int) -> Iterator[Callable[[Features], None]]:
    """Write a `.npy` of any number of rows; yields a function that appends `[rows, dim]`."""
    with atomic_file(path) as temporary, temporary.open("wb") as file:
        rows = 0

        def header() -> int:
            fields = {"descr": _TYPE.str, "fortran_order": False, "shape": (rows, dim)}
            np.lib.format.write_array_header_1_0(file, fields)
            return file.tell()

        def append(block: Features) -> None:
            nonlocal rows
            file.write(np.ascontiguousarray(block, _TYPE).data)
            rows += len(block)

        size = header()
        yield append
        file.seek(0)
        # NumPy leaves room in the header for the first axis to grow.
        assert header() == size
