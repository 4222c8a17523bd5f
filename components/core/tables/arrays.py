"""Arrays on disk (`.npy`), larger than memory: written block by block, opened memory-mapped, read by rows.

And sequences of texts in one Arrow array.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from components.core.system.errors import InputError

_BLOCK = 10_000
"""Texts of a column that are Python strings at a time."""


def mapped_array(path: Path, fix: str) -> npt.NDArray[Any]:
    """The array at `path`, read-only, without pickles."""
    try:
        return np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0][:120]}): {fix}") from None


@contextmanager
def written_array(path: Path, kind: npt.DTypeLike, shape: tuple[int, ...]) -> Iterator[Callable[[npt.ArrayLike], None]]:
    """Write an array of that shape to `path`; yields a function that appends rows.

    A mapped file would count as memory of this process until the last row is written.
    """
    dtype = np.dtype(kind)
    with path.open("wb") as file:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        yield lambda rows: np.ascontiguousarray(rows, dtype).tofile(file)


def rows_of(array: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """A copy of rows of an array; pages of a mapped array do not stay in this process's memory.

    The system caches pages that are read often; each row would otherwise leave sixteen of them in this process.
    """
    copied = np.asarray(array[rows])
    mapping = getattr(array, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
    return copied


class TextColumn(Sequence[str]):
    """Texts that take only the memory of their letters; a list of strings takes 50 bytes more for each.

    >>> names = TextColumn(["ape", "bee", "ape"])
    >>> names[1], list(names.places(["cat", "ape"]))
    ('bee', [-1, 0])
    """

    def __init__(self, texts: Any) -> None:
        column = texts.arrow if isinstance(texts, TextColumn) else texts
        if not isinstance(column, pa.ChunkedArray | pa.Array):
            column = pa.array(column, pa.large_string())
        whole = column.cast(pa.large_string())
        self.arrow: pa.Array = whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole

    def __len__(self) -> int:
        """The number of texts."""
        return len(self.arrow)

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> TextColumn: ...

    def __getitem__(self, place: int | slice) -> str | TextColumn:
        """A text, or a part of the column."""
        part = self.arrow[place]
        return TextColumn(part) if isinstance(place, slice) else str(part.as_py())

    def __iter__(self) -> Iterator[str]:
        """The texts in order."""
        for start in range(0, len(self), _BLOCK):
            yield from self.arrow.slice(start, _BLOCK).to_pylist()

    def places(self, texts: Iterable[str]) -> npt.NDArray[np.int64]:
        """The first row of each of `texts` in this column, or -1."""
        rows = pc.index_in(TextColumn(texts).arrow, value_set=self.arrow)
        return np.asarray(pc.fill_null(rows, -1).to_numpy(zero_copy_only=False), dtype=np.int64)
