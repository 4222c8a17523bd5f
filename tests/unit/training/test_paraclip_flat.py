"""ParaCLIP in one file and stage `train` are two implementations of the same training."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from components.encoders.adapter.encoder import Encoder
from components.registry.formats import find_format
from components.training import train
from tests.conftest import REPO
from tests.support.toy_world import World, world_settings

ENTRY = {"batch_size": 16, "epochs": 2, "lr": 0.0003, "weight_decay": 0.1}


@pytest.fixture
def exported(world: World, tmp_path: Path) -> Path:
    folder = tmp_path / "exported"
    folder.mkdir()
    find_format("open_clip").write(Encoder.load(world.files.base), folder)
    return folder


def test_one_file_has_the_losses_and_weights_of_the_stage(
    world: World, exported: Path, tmp_path: Path, track_in: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    track_in(tmp_path)
    losses: list[dict[str, float]] = []
    monkeypatch.setattr(train, "report_to", lambda _run: lambda step: losses.append(step.losses))
    # The file trains on all rows.
    settings = world_settings(tmp_path / "state", validation_images=0, log_every=1)
    settings = settings.model_copy(update={"methods": {"paraclip": ENTRY}})
    train.run(settings, "paraclip", replace(world.files, models=tmp_path))
    trained: dict[str, Any] = Encoder.load(tmp_path / "paraclip").model.state_dict()

    one_file, output = runpy.run_path(str(REPO / "docs/examples/paraclip_flat.py")), tmp_path / "flat.safetensors"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in ENTRY.items()]
    tables = world.files.train, world.files.validated / "paraphrases.parquet"
    options += [f"--pairs={tables[0]}", f"--paraphrases={tables[1]}"]
    history = one_file["main"]([f"local-dir:{exported}", str(output), *options])

    assert len(history) == 14
    for own, stages in zip(history, losses, strict=True):
        assert own == pytest.approx(stages, abs=1e-5)
    assert sum(history[-1].values()) < sum(history[0].values()) - 0.1
    flat = load_file(output)
    for name in flat:
        if name.endswith("attn.in_proj_bias"):
            # A bias of the keys adds the same number to all of a query's logits: its gradient is only rounding.
            flat[name].chunk(3)[1].zero_()
            trained[name].chunk(3)[1].zero_()
    torch.testing.assert_close(flat, trained, atol=1e-5, rtol=0)
