"""Chooses the device and precision to compute in; knows peak FLOP/s and peak memory."""

from __future__ import annotations

import re
import resource
import sys

import torch

from components.core.errors import InputError

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
    """`cuda` or `cpu`; `auto` takes the accelerator where there is one.

    Raises:
        InputError: `cuda` is wanted but there is none.
    """
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise InputError("params.yaml: train.device is 'cuda' but no GPU is visible: set it to 'auto' or 'cpu'")
    return wanted


def pick_autocast(precision: str, device: str) -> torch.dtype | None:
    """Element type of mixed precision, None for float32; `auto` means bfloat16 on a GPU that has it.

    Raises:
        InputError: `fp16` is wanted on a processor, where it is neither faster nor safe.
    """
    if precision == "fp16" and not device.startswith("cuda"):
        raise InputError("params.yaml: train.precision 'fp16' needs a GPU: set it to 'auto' or 'fp32'")
    if precision in ("bf16", "fp16"):
        return {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    if precision == "auto" and device.startswith("cuda") and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return None


def peak_flops(device: str) -> float | None:
    """The GPU's dense 16-bit peak in FLOP/s, None where it is not known."""
    if not device.startswith("cuda"):
        return None
    return peak_of(torch.cuda.get_device_name(device))


def peak_of(name: str) -> float | None:
    """The dense 16-bit peak in FLOP/s of the GPU that calls itself `name`, None where it is not known."""
    # Whole words only: an RTX A4000 is no A40.
    words = re.split(r"[^A-Za-z0-9]+", name)
    return next((_PEAK_TFLOPS[word] * 1e12 for word in words if word in _PEAK_TFLOPS), None)


def peak_memory(device: str) -> float:
    """The most memory used so far in MB: the GPU's where one computes, else this process's."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
