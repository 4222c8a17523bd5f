"""Devices, precisions and peaks; batches fit the memory of a device, and results on it are those of the CPU."""

from __future__ import annotations

import logging

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.core.compute import devices
from components.core.compute.devices import FeatureGallery, fits, in_batches, peak_memory, peak_of, pick_device
from components.core.compute.distributed import World, join_world
from components.core.compute.metrics import best_columns, tensor_columns
from components.core.system.errors import InputError


def test_batches_are_halved_when_memory_runs_out_and_a_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    tried = []

    def compute(rows: slice) -> list[int]:
        tried.append(rows.stop - rows.start)
        if tried[-1] > 3:
            raise torch.OutOfMemoryError
        return [*range(rows.start, rows.stop)]

    with caplog.at_level(logging.WARNING):
        made = [row for _, part in in_batches(7, 7, "text", "cuda:1", compute) for row in part]
    assert (made, tried) == ([*range(7)], [7, 3, 3, 1])
    assert caplog.messages == ["cuda:1 has too little free memory: batches of 3 texts from here on"]

    def never(_: slice) -> None:
        raise torch.OutOfMemoryError

    with pytest.raises(InputError, match="cuda:1 has too little free memory for one text: set device to cpu"):
        list(in_batches(7, 7, "text", "cuda:1", never))


def test_a_first_batch_shows_how_many_fit(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    found = {"mem_get_info": (9_000, 0), "memory_reserved": 3_000, "memory_allocated": 2_000}
    # 256 rows took 1,280 bytes at the peak, and half of 10,000 is free for 1,000 rows.
    found |= {"max_memory_allocated": 3_280, "reset_peak_memory_stats": None}
    for name, value in found.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, value=value: value)
    sizes = [rows.stop - rows.start for rows, _ in in_batches(2_000, None, "text", "cuda", lambda _: None)]
    assert sizes == [256, 1_000, 744]
    assert [rows.stop - rows.start for rows, _ in in_batches(600, None, "text", "cpu", lambda _: None)] == [
        256,
        256,
        88,
    ]
    with caplog.at_level(logging.WARNING):
        assert (fits(5_000, "cuda"), fits(5_001, "cuda"), fits(10**9, "cpu")) == (True, False, True)
        assert FeatureGallery(np.zeros((2_000, 1), np.float32), "cuda").device == "cpu"
    assert caplog.messages[0].endswith("of free memory, features take 0.0 GB: they are compared on the CPU")


def test_on_a_device_the_best_columns_are_those_of_the_cpu_in_the_same_order() -> None:
    rng = np.random.default_rng(0)
    for items, k, levels in ((50, 10, 4), (50, 50, 3), (300, 1, 2), (40, 5, 1000), (20, 7, 1)):
        similarity = rng.integers(0, levels, (30, items)).astype(np.float32) - 1
        found = tensor_columns(torch.from_numpy(similarity), k).numpy()
        np.testing.assert_array_equal(found, best_columns(similarity, k), err_msg=f"{items} {k} {levels}")


def test_peaks_by_name_and_in_megabytes() -> None:
    peaks = {
        "NVIDIA H100 80GB HBM3": 989, "NVIDIA H200": 989, "NVIDIA GH200 480GB": 989, "NVIDIA A100-SXM4-80GB": 312,
        "NVIDIA A10G": 70, "NVIDIA A10": 125, "NVIDIA L40S": 362, "NVIDIA L4": 121, "Tesla V100-SXM2-16GB": 125,
        "Tesla T4": 65,
    }  # fmt: skip
    assert {name: peak_of(name) for name in peaks} == {name: tera * 1e12 for name, tera in peaks.items()}
    others = ("NVIDIA RTX A4000", "NVIDIA RTX A1000 Laptop GPU", "NVIDIA T400", "AMD Instinct MI300X")
    assert [peak_of(name) for name in others] == [None] * 4
    assert devices.peak_flops("cpu") is None
    now = psutil.Process().memory_info().rss / 1e6
    peak = peak_memory("cpu")
    assert now * 0.9 < peak < psutil.virtual_memory().total / 1e6


def test_devices_and_precisions_are_picked(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_single_rank_leads_and_exchanges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [World(rank, 3).leads for rank in range(3)] == [True, False, False]
    for name in ("LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with join_world("cpu") as (world, device):
        assert (world, device, world.leads) == (World(0, 1), "cpu", True)
        rows = torch.randn(2, 3, 4)
        assert torch.equal(world.gather(rows), rows)
        assert torch.equal(world.own_gradient(rows), rows)
        kept = rows.clone()
        world.average([rows])
        assert torch.equal(rows, kept)
        assert world.everyones(7) == [7]
        world.wait()


@given(st.integers(1, 64), st.integers(1, 8))
def test_ranks_share_a_batch_evenly_or_not_at_all(batch_size: int, ranks: int) -> None:
    if batch_size % ranks == 0:
        assert World(0, ranks).share(batch_size) * ranks == batch_size
    else:
        with pytest.raises(InputError, match=f"batch_size {batch_size} cannot be shared by {ranks} ranks"):
            World(0, ranks).share(batch_size)
