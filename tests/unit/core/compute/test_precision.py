"""Devices, precisions and peaks."""

from __future__ import annotations

import psutil
import pytest
import torch

from components.core.compute import devices
from components.core.compute.devices import peak_memory, peak_of, pick_device
from components.core.system.errors import InputError


def test_peaks_by_name() -> None:
    peaks = {
        "NVIDIA H100 80GB HBM3": 989, "NVIDIA H200": 989, "NVIDIA GH200 480GB": 989, "NVIDIA A100-SXM4-80GB": 312,
        "NVIDIA A10G": 70, "NVIDIA A10": 125, "NVIDIA L40S": 362, "NVIDIA L4": 121, "Tesla V100-SXM2-16GB": 125,
        "Tesla T4": 65,
    }  # fmt: skip
    assert {name: peak_of(name) for name in peaks} == {name: tera * 1e12 for name, tera in peaks.items()}
    others = ("NVIDIA RTX A4000", "NVIDIA RTX A1000 Laptop GPU", "NVIDIA T400", "AMD Instinct MI300X")
    assert [peak_of(name) for name in others] == [None] * 4
    assert devices.peak_flops("cpu") is None


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (pick_device("auto"), pick_device("cpu")) == ("cpu", "cpu")
    with pytest.raises(InputError, match="device is 'cuda', and torch finds 0 GPUs"):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen = {name: pick_device(name) for name in ("auto", "cpu", "cuda", "cuda:1")}
    assert chosen == {"auto": "cuda", "cpu": "cpu", "cuda": "cuda", "cuda:1": "cuda:1"}
    for wrong, refusal in (("cuda:2", "torch finds 2 GPUs"), ("gpu", "'gpu' is unknown"), ("cuda:x", "is unknown")):
        with pytest.raises(InputError, match=refusal):
            pick_device(wrong)


def test_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Automatic precision is bf16 where the device multiplies it."""
    for kinds, used, native in (
        ({"avx512_bf16"}, "AVX512", True), ({"amx_bf16"}, "AVX512", True), ({"avx512_bf16", "amx_bf16"}, "AVX2", False),
        (set(), "AVX512", False), (set(), "DEFAULT", False),
    ):  # fmt: skip
        capabilities = {kind: kind in kinds for kind in ("avx512_bf16", "amx_bf16")} if used != "DEFAULT" else {}
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=capabilities: found)
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda used=used: used)
        assert devices.pick_precision("auto", "cpu") == ("bf16" if native else "fp32"), (kinds, used)
        assert devices.pick_autocast("auto", "cpu") == (torch.bfloat16 if native else None), (kinds, used)
    assert [devices.pick_autocast(name, "cpu") for name in ("fp32", "bf16")] == [None, torch.bfloat16]
    with pytest.raises(InputError, match=r"train\.precision 'fp16' needs a GPU"):
        devices.pick_autocast("fp16", "cpu")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    found = [devices.pick_autocast(name, "cuda:1") for name in ("auto", "fp32", "bf16", "fp16")]
    assert found == [torch.bfloat16, None, torch.bfloat16, torch.float16]
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: including_emulation)
    assert devices.pick_autocast("auto", "cuda") is None


def test_peak_memory_is_in_megabytes() -> None:
    now = psutil.Process().memory_info().rss / 1e6
    peak = peak_memory("cpu")
    assert now * 0.9 < peak < psutil.virtual_memory().total / 1e6
