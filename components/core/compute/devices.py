"""Features on the device that computes: the gallery of a search, results on their way back, batches that fit.

Metrics compare on the device of the block `computing_on`, without a parameter in every benchmark.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from components.core.system.errors import InputError

T = TypeVar("T")
Values = Any
"""An array on the CPU, a tensor on a GPU; comparisons, indexing and sums are written alike for both."""
_DEVICE: ContextVar[str] = ContextVar("device", default="cpu")
_SHARE = 0.5
"""Of a GPU's free memory that a gallery or a batch may take."""
_MOST = 8192
"""Rows of a batch; larger ones are not faster."""
_log = logging.getLogger(__name__)


@contextmanager
def computing_on(device: str) -> Iterator[None]:
    """Metrics in the block compare features on this device; elsewhere on the CPU."""
    token = _DEVICE.set(device)
    try:
        yield
    finally:
        _DEVICE.reset(token)


def fetched(values: Values) -> npt.NDArray[Any]:
    """The array of a tensor; results leave a device only here."""
    array: npt.NDArray[Any] = values if isinstance(values, np.ndarray) else values.cpu().numpy()
    return array


def library(values: Values) -> Any:
    """NumPy or torch: the module whose functions take these values."""
    if isinstance(values, np.ndarray):
        return np
    import torch

    return torch


def taken(values: Values, columns: Values) -> Values:
    """Values `[rows, any]` at other columns `[rows, n]` of each row."""
    return np.take_along_axis(values, columns, axis=1) if isinstance(values, np.ndarray) else values.gather(1, columns)


class FeatureGallery:
    """Features `[items, dim]` that queries are compared with, on a GPU if they fit.

    Args:
        device: by default that of the block `computing_on`.
    """

    def __init__(self, features: npt.NDArray[Any], device: str | None = None) -> None:
        self.device = _DEVICE.get() if device is None else device
        if not fits(features.nbytes, self.device):
            self.device = "cpu"
        self._placed = placed(features, self.device)

    def __len__(self) -> int:
        return len(self._placed)

    def similarities(self, queries: npt.NDArray[Any], items: Any = slice(None)) -> Values:
        """Products `[queries, items]` of queries `[queries, dim]` with the items, or with some by number or slice."""
        chosen = self._placed[items if isinstance(items, slice) else placed(items, self.device)]
        return placed(queries, self.device) @ chosen.T


def fits(size: int, device: str) -> bool:
    """Whether features of `size` bytes leave enough memory of the device free; logs a line if not."""
    if device == "cpu" or size <= (free := _free_memory(device)) * _SHARE:
        return True
    _log.warning(
        "%s has %.1f GB of free memory, features take %.1f GB: they are compared on the CPU",
        device, free / 1e9, size / 1e9,
    )  # fmt: skip
    return False


def placed(array: npt.NDArray[Any], device: str) -> Values:
    """An array, or its copy on a GPU."""
    if device == "cpu":
        return array
    import torch

    return torch.from_numpy(np.array(array)).to(device)


def in_batches(
    rows: int, size: int | None, unit: str, device: str, compute: Callable[[slice], T]
) -> Iterator[tuple[slice, T]]:
    """`compute(batch)` of consecutive batches of rows; if memory runs out, this and all later batches are halved.

    Args:
        size: rows of a batch; None begins with 256, and on a GPU continues with as many as should fit by the memory of
            the first batch.
    """
    import torch

    batch, measure, start = size or 256, size is None and device != "cpu", 0
    while start < rows:
        chosen = slice(start, min(start + batch, rows))
        count = chosen.stop - start
        if measure:
            torch.cuda.reset_peak_memory_stats(device)
        try:
            made = compute(chosen)
        except torch.OutOfMemoryError:
            if count == 1:
                raise InputError(f"{device} has too little free memory for one {unit}: set device to cpu") from None
            batch, measure = count // 2, False
            _log.warning("%s has too little free memory: batches of %d %ss from here on", device, batch, unit)
            torch.cuda.empty_cache()
            continue
        if measure:
            batch, measure = _fitting(device, count), False
        start = chosen.stop
        yield chosen, made


def _fitting(device: str, rows: int) -> int:
    """The rows of a batch that fits, from the peak of memory of a batch of `rows`."""
    import torch

    used = torch.cuda.max_memory_allocated(device) - torch.cuda.memory_allocated(device)
    return max(rows, min(_MOST, int(rows * _free_memory(device) * _SHARE / max(1, used))))


def _free_memory(device: str) -> int:
    """Bytes that this process can still allocate, with those that it holds unused."""
    import torch

    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + held
