"""Devices: which one computes and in which precision, its peaks, and features on it.

Metrics compare on the device of the block `computing_on`, without a parameter in every benchmark.
"""

from __future__ import annotations

import logging
import re
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from components.core.system.errors import InputError

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
Values = Any
"""An array on the CPU, a tensor on a GPU; comparisons, indexing and sums are written alike for both."""
_DEVICE: ContextVar[str] = ContextVar("device", default="cpu")
_SHARE = 0.5
"""Of a GPU's free memory that a gallery or a batch may take."""
_MOST = 8192
"""Rows of a batch; larger ones are not faster."""
_log = logging.getLogger(__name__)

_PEAK_TFLOPS = {
    "H200": 989.0,
    "H100": 989.0,
    "GH200": 989.0,
    "B200": 2250.0,
    "A100": 312.0,
    "A10G": 70.0,
    "A10": 125.0,
    "A40": 149.7,
    "L40S": 362.0,
    "L40": 181.0,
    "L4": 121.0,
    "V100": 125.0,
    "T4": 65.0,
}
"""Dense 16-bit tensor peak by GPU name, from NVIDIA's data sheets."""


def pick_device(wanted: str) -> str:
    """`cpu`, `cuda` or `cuda:<number>`; `auto` uses a GPU if available."""
    import torch

    kind, _, number = wanted.partition(":")
    if wanted not in ("auto", "cpu", "cuda") and not (kind == "cuda" and number.isdecimal()):
        raise InputError(f"device '{wanted}' is unknown: choose auto, cpu, cuda, or a GPU by number such as cuda:1")
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted == "auto":
        return "cuda" if gpus else "cpu"
    if kind == "cuda" and int(number or 0) >= gpus:
        raise InputError(f"device is '{wanted}', and torch finds {gpus} GPUs: set it to 'auto' or 'cpu'")
    return wanted


def bf16_is_native(device: str) -> bool:
    """Whether `device` multiplies bfloat16 matrices in hardware: a processor does with AVX512-BF16 or AMX."""
    import torch

    if device.startswith("cuda"):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    has = torch.cpu.get_capabilities()
    # `ATEN_CPU_CAPABILITY` may restrict torch to less than the processor supports.
    used = "AVX512" in torch.backends.cpu.get_cpu_capability()
    return used and bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def pick_precision(wanted: str, device: str) -> str:
    """`fp32`, `bf16` or `fp16`; `auto` uses bf16 if the device has it in hardware, else fp32."""
    if wanted == "auto":
        return "bf16" if bf16_is_native(device) else "fp32"
    if wanted == "fp16" and not device.startswith("cuda"):
        raise InputError("params.yaml: train.precision 'fp16' needs a GPU: set it to 'auto' or 'fp32'")
    return wanted


def pick_autocast(precision: str, device: str) -> torch.dtype | None:
    """Element type of mixed precision, None for float32; see `pick_precision`."""
    import torch

    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[pick_precision(precision, device)]


def peak_flops(device: str) -> float | None:
    """The GPU's dense 16-bit peak in FLOP/s, None if unknown."""
    import torch

    if not device.startswith("cuda"):
        return None
    return peak_of(torch.cuda.get_device_name(device))


def peak_of(name: str) -> float | None:
    """The dense 16-bit peak in FLOP/s of the GPU named `name`, None if unknown."""
    # Whole words only: an RTX A4000 is not an A40.
    words = re.split(r"[^A-Za-z0-9]+", name)
    return next((_PEAK_TFLOPS[word] * 1e12 for word in words if word in _PEAK_TFLOPS), None)


def peak_memory(device: str) -> float:
    """Peak memory so far in MB: of the GPU if one computes, else of this process."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


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
