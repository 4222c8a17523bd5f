"""Chooses device and precision; reports peak FLOP/s and peak memory."""

from __future__ import annotations

import re
import resource
import sys

import torch

from components.core.system.errors import InputError

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
    return {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}[pick_precision(precision, device)]


def peak_flops(device: str) -> float | None:
    """The GPU's dense 16-bit peak in FLOP/s, None if unknown."""
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
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
