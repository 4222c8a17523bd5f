"""Arrays on disk (`.npy`), larger than memory: written block by block, opened memory-mapped, rows taken of them.

Used for embeddings and token caches.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.errors import InputError


def mapped_array(path: Path, fix: str) -> npt.NDArray[Any]:
    """The array at `path`, read-only; nothing in the file is run.

    Args:
        fix: what to do where the file is damaged.

    Raises:
        InputError: it is no whole `.npy` file.
    """
    try:
        found: npt.NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, OSError) as error:
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0][:120]}): {fix}") from None
    return found


@contextmanager
def written_array(path: Path, kind: npt.DTypeLike, shape: tuple[int, ...]) -> Iterator[Callable[[npt.ArrayLike], None]]:
    """Write an array of that shape to `path`; yields what appends rows to it.

    A mapped file would count as this process's memory until the last row is there.
    """
    dtype = np.dtype(kind)
    with path.open("wb") as file:
        told = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, told)
        yield lambda rows: np.ascontiguousarray(rows, dtype).tofile(file)


def rows_of(array: npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Rows of an array by their numbers, copied; of a mapped one, no page stays in this process's memory.

    The system keeps pages that are read often, and each row would otherwise leave sixteen of them here.
    """
    found = np.asarray(array[rows])
    mapping = getattr(array, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapping.madvise(mmap.MADV_DONTNEED)
    return found
