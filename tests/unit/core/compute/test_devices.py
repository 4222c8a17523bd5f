"""Batches fit the memory of a device, and results on it are those of the CPU, ties included."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from components.core.compute.devices import FeatureGallery, fits, in_batches
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


def test_a_first_batch_shows_how_many_rows_fit_into_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
