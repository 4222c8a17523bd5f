"""Both sides of the training benchmark train alike; speed is not tested."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.training import compare, compare_precisions, measure
from benchmarks.training_memory import curve
from benchmarks.training_ours import Ours
from benchmarks.training_peer import Peer

PEER = Peer(losses=[3.0, 2.0, 1.5], seconds=[9.0, 4.0, 6.0], waits=[1.0, 1.0, 1.0], processor=[10.0, 18.0, 30.0])
OURS = Ours(
    losses=[3.0, 2.25, 1.5],
    seconds=[5.0, 0.5, 0.5],
    processor=[1.0, 2.0, 3.0],
    shares={"text forward": 1.0},
    flop_utilisation=None,
    mismatched_loss=4.0,
)
"""A batch of 8 rows."""


@pytest.mark.integration
def test_both_sides_train_the_same_weights_on_the_same_rows() -> None:
    found = measure("ViT-S-32-alt", 4, 1, None, "cpu", ("fp32", "bf16"), torch.get_num_threads())
    assert found == json.loads(json.dumps(found))
    assert found["first_step_loss_difference"] <= 1e-4
    # The second loss is equal only if gradients, learning rate and optimiser are.
    assert found["largest_loss_difference"] <= 1e-4
    assert abs(found["first_step_loss_ours"] - found["last_step_loss_ours"]) > 0.01
    assert abs(found["first_step_loss_mismatched"] - found["first_step_loss_ours"]) > 0.01
    # Rounded to three digits, the losses stay those of the same training.
    assert found["bf16"]["largest_loss_difference"] <= 0.05
    assert found["bf16"]["first_step_loss_ours"] != found["first_step_loss_ours"]
    assert found["bf16"]["first_step_loss_peer"] != found["first_step_loss_peer"], "the peer ran a second time"
    assert found["speedup_vs_open_clip_train_bf16"] == found["bf16"]["speedup_vs_open_clip_train"] > 0
    shares = found["time_shares"]
    assert shares.keys() == {"text forward", "optimiser", "data wait", "loss, backward and clipping"}
    assert all(share > 0 for share in shares.values())
    assert sum(shares.values()) == pytest.approx(1)


def test_figures_by_hand() -> None:
    found = compare([(PEER, OURS)], 8, 0.25)
    # The first step of each side is left out of rates.
    assert found["samples_per_second_peer"] == 8 / 5
    assert found["samples_per_second_ours"] == 16
    assert found["speedup_vs_open_clip_train"] == found["speedup_in_processor_time"] == 10
    assert found["speedup_without_peers_data_wait"] == 8
    assert found["first_step_loss_difference"] == 0
    assert found["largest_loss_difference"] == 0.25
    # An epoch is a step of 5 s against one of 0.5 s; embedding its 8 images takes 2 s.
    assert found["break_even_epochs"] == pytest.approx(2 / 4.5)
    assert found["speedup_with_embedding_by_epochs"]["1"] == 5 / 2.5
    assert found["speedup_with_embedding_by_epochs"]["10"] == 50 / 7
    assert compare([(PEER, replace(OURS, seconds=[9.0, 9.0, 9.0]))], 8, 0.25)["break_even_epochs"] is None
    assert set(compare_precisions({"fp32": [(PEER, OURS)]}, 8, 0.25).values()) == {None}


def test_speedups_are_medians_over_rounds_of_each_precision() -> None:
    slow = replace(OURS, seconds=[9.0, 2.0, 2.0])
    assert compare([(PEER, OURS), (PEER, slow), (PEER, slow)], 8, 0.25)["speedup_vs_open_clip_train"] == 2.5
    mixed = replace(OURS, seconds=[9.0, 0.25, 0.25], processor=[1.0, 1.25, 1.5])
    runs = {"fp32": [(PEER, OURS), (PEER, slow)], "bf16": [(PEER, mixed), (PEER, replace(mixed, seconds=[9, 1, 1]))]}
    found = compare_precisions(runs, 8, 0.25)
    assert found["speedup_bf16_vs_fp32"] == 2
    assert found["speedup_bf16_vs_fp32_in_processor_time"] == 4
    assert found["speedup_vs_open_clip_train_bf16"] == (20 + 5) / 2


@pytest.mark.integration
def test_memory_is_measured_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in {"BATCH": 8, "MICRO_BATCH": 4, "MICRO_BATCHES": (4,), "BATCHES": (8,)}.items():
        monkeypatch.setattr(f"benchmarks.training_memory.{name}", size)
    held = torch.ones(500_000_000)
    (point,) = curve("ViT-S-32-alt", 1)
    assert (point.batch, point.micro_batch) == (8, 4)
    # The weights, their gradients and Adam's moments are 0.4 GB; what this process holds, 2 GB, is not counted.
    assert 0.4 < point.peak_gb < held.nbytes / 1e9
