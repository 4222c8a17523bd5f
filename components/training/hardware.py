"""Where to compute and in what precision."""

from __future__ import annotations

import torch

from components.errors import InputError


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
    """Element type of mixed precision, None for float32; `auto` means bfloat16 on a GPU that has it."""
    if precision == "bf16":
        return torch.bfloat16
    if precision == "auto" and device == "cuda" and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return None
