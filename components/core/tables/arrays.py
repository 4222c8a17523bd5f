"""Arrays on disk (`.npy`), larger than memory: written block by block, opened memory-mapped, read by rows."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.system.errors import InputError


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
