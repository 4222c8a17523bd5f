"""A machine's GPU, or two that it lacks: torch's fake tensors have a device and no numbers.

An operation on tensors of two devices raises, and results may only leave from a GPU. Weights are read and written
outside: only the passes, searches and statistics in between are fake.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from components.core.compute import devices
from components.encoders import parity
from components.encoders.adapter import tokens
from components.encoders.adapter.encoder import Encoder

GPU = "cuda:0"


@contextmanager
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[torch.device]]:
    """Yields the devices that results were fetched from; without a GPU, every tensor in the block is fake."""
    fetched_from: list[torch.device] = []
    real, original = torch.cuda.is_available(), devices.fetched

    def fetched(tensor: Tensor) -> Any:
        fetched_from.append(torch.device(tensor.device))
        assert fetched_from[-1] == torch.device(GPU), f"computed on {tensor.device}"
        if real:
            return original(tensor)
        if not tensor.is_floating_point():
            # Numbers of columns, such as a search returns; nothing is damaged.
            return np.zeros(tensor.shape, np.bool_) if tensor.dtype == torch.bool else np.indices(tensor.shape)[-1]
        return np.full(tensor.shape, tensor.shape[-1] ** -0.5 if tensor.ndim else 0, np.float32)

    for module in [*sys.modules.values()]:
        if getattr(module, "fetched", None) is original and module is not devices:
            monkeypatch.setattr(module, "fetched", fetched)
    if real:
        yield fetched_from
        return
    for name, value in (("is_available", True), ("device_count", 2), ("mem_get_info", (1 << 33, 1 << 34))):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    for name in ("memory_reserved", "memory_allocated", "max_memory_allocated", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: 0)
    # Otherwise fake tensors start CUDA as soon as torch reports a GPU.
    monkeypatch.setattr(FakeTensorMode, "avoid_device_init", property(lambda _: True))
    monkeypatch.setattr(nn.Module, "to", _moved)
    monkeypatch.setattr(Encoder, "image_tower_hash", lambda _: "tower")
    for owner, name in ((Encoder, "load"), (tokens, "in_blocks"), (parity, "_prepared")):
        monkeypatch.setattr(owner, name, staticmethod(_really(getattr(owner, name))))
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield fetched_from


def _really(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with real tensors: files, tokenizers and transforms of pictures do not use the GPU."""

    def call(*arguments: Any) -> Any:
        with unset_fake_temporarily():
            return function(*arguments)

    return call


def _moved(module: nn.Module, device: str) -> nn.Module:
    """As `Module.to`, which cannot exchange a real parameter for a fake one."""
    for part in module.modules():
        for name, weights in list(part.named_parameters(recurse=False)):
            part._parameters[name] = nn.Parameter(weights.detach().to(device), requires_grad=False)
        for name, values in list(part.named_buffers(recurse=False)):
            part._buffers[name] = values.to(device)
    return module
