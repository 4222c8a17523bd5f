"""Objects' names as a second lesson of a base that is trained from nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from components.core.compute import devices
from components.core.tracking import make_client
from components.data.world.lexicon import load_lexicon
from components.data.world.scenes import Scene, Thing
from components.encoders.adapter.encoder import Encoder
from components.training.base.base import run
from components.training.base.contrastive import PLACES, SHOWN, Naming, scene_labels
from components.training.methods.contract.losses import Feature, Features
from tests.unit.training.base.scratch import scratch_settings, write_pairs

NAMES = list(load_lexicon().objects)
SCENES = [
    Scene("pair", "red", Thing(NAMES[0], "small"), Thing(NAMES[3], "large"), relation="left"),
    Scene("single", "blue", Thing(NAMES[3], "large"), position="center"),
]


def test_labels_are_the_objects_of_each_picture_and_their_places(tmp_path: Path) -> None:
    write_pairs(tmp_path, [scene.to_json() for scene in SCENES])
    labels = scene_labels(tmp_path / "train.parquet")
    assert labels[SHOWN].shape == (2, len(NAMES))
    assert [np.flatnonzero(row).tolist() for row in labels[SHOWN]] == [[0, 3], [3]]
    assert labels[PLACES].tolist() == [[1, 4, 0, 0], [0, 0, 0, 0]]


def test_pictures_that_were_not_drawn_have_no_labels(tmp_path: Path) -> None:
    write_pairs(tmp_path, [SCENES[0].to_json(), None])
    assert scene_labels(tmp_path / "train.parquet") == {}


def test_losses_are_those_of_shown_objects_and_their_places() -> None:
    torch.manual_seed(0)
    naming, image, caption = Naming(6, 0.5), torch.randn(2, 6), torch.randn(2, 6)
    shown, places = torch.zeros(2, len(NAMES), dtype=torch.long), torch.tensor([[1, 4, 0, 0], [0, 0, 0, 0]])
    shown[0, [0, 3]] = shown[1, 3] = 1
    columns = {"image": Feature(image, 0, 2), "caption": Feature(caption, 0, 2)}
    found = naming(Features(columns, torch.tensor(1.0), naming, labels={SHOWN: shown, PLACES: places}))
    logs = (3 * naming.shown(image)).log_softmax(dim=1)
    assert found["naming"].item() == pytest.approx(-0.5 * ((logs[0, 0] + logs[0, 3]) / 2 + logs[1, 3]).item() / 2)
    for name, raw in (("image", image), ("caption", caption)):
        cosines = F.cosine_similarity(raw[:, None], naming.places[None], dim=2).view(2, 4, -1)
        sides = (math.exp(3) * cosines).log_softmax(dim=2)
        each = [-sides[row, side, places[row, side]].item() for row in range(2) for side in range(4)]
        assert found[f"placing_{name}"].item() == pytest.approx(0.5 * np.mean(each), rel=1e-5)


def test_a_base_learns_names_keeps_only_its_towers_and_logs_the_precision_that_auto_chose(
    raw_params: dict[str, Any], tmp_path: Path, track_in: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    track_in(tmp_path)
    write_pairs(tmp_path, [scene.to_json() for scene in SCENES * 4])
    plan = {"epochs": 40, "batch_size": 8, "lr": 3e-3, "attribute_loss_weight": 1.0}
    raw_params["train"]["precision"] = "auto"
    settings = scratch_settings(raw_params, tmp_path, **plan)
    monkeypatch.setattr(devices, "bf16_is_native", lambda _device: False)
    run(settings, tmp_path / "base", tmp_path)
    run_id = json.loads((tmp_path / "base" / "run.json").read_text("utf-8"))["run_id"]
    for loss in ("loss/naming", "loss/placing_image", "loss/placing_caption"):
        history = [point.value for point in make_client().get_metric_history(run_id, loss)]
        assert len(history) == 40
        assert history[-1] < history[0] / 2
    assert make_client().get_run(run_id).data.params["train.precision"] == "fp32"
    assert Encoder.load(tmp_path / "base").extra == {}
