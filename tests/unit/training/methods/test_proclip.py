"""ProCLIP: two phases, each with its own loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from components.encoders.adapter.encoder import Encoder
from components.training.methods.proclip import METHOD
from tests.unit.training.methods.examples import SCALE, as_features, picking, random_columns, unit

COLUMNS = random_columns(("image", "caption", "base.image", "base.caption"))


def _losses(columns: dict[str, Any], epoch: int | None, **given: Any) -> dict[str, float]:
    method = METHOD.read({"epochs": 4, **given})
    features = replace(as_features(columns), epoch=epoch)
    return {name: loss.item() for name, loss in method.losses(features).items()}


def _near_base(column: str, weight: float = 1.0) -> dict[str, float]:
    """Instance and structure terms over pairs i < j, by the batch size."""
    rows, base = unit(COLUMNS[column]), unit(COLUMNS[f"base.{column}"])
    upper = np.triu_indices(len(rows), 1)
    here, there = (np.linalg.norm(one[:, None] - one, axis=2)[upper] for one in (rows, base))
    apart = np.abs(here - there)
    structure = np.where(apart < 1, apart**2 / 2, apart - 0.5).sum()
    return {"instance": weight * ((rows - base) ** 2).sum() / len(rows), "structure": weight * structure / len(rows)}


@pytest.mark.parametrize("epoch", [0, 1])
def test_in_the_first_phase_captions_are_drawn_to_the_bases(epoch: int) -> None:
    assert _losses(COLUMNS, epoch) == pytest.approx(_near_base("caption"))


@pytest.mark.parametrize("epoch", [2, 3, None])
def test_in_the_second_a_contrast_joins_what_holds_a_trained_image_tower(epoch: int | None) -> None:
    image, caption = unit(COLUMNS["image"]), unit(COLUMNS["caption"])
    contrast = (picking(image, caption, scale=SCALE) + picking(caption, image, scale=SCALE)) / 2
    found = _losses(COLUMNS, epoch, distil_weight=0.3)
    assert found == pytest.approx({"infonce": contrast} | _near_base("image", 0.3))
    frozen = {name: rows for name, rows in COLUMNS.items() if name != "base.image"}
    found = _losses(frozen, epoch, distil_weight=0.3)
    assert found == pytest.approx({"infonce": contrast} | _near_base("caption", 0.3))


def test_a_single_epoch_contrasts() -> None:
    assert "infonce" in _losses(COLUMNS, 0, epochs=1)


def test_the_language_model_is_frozen_and_what_is_on_top_of_it_trains(tiny_encoder: Encoder) -> None:
    for given, inside in (({}, set()), ({"strategy": "alignment", "alignment_layers": 1}, {"alignment_0"})):
        method = METHOD.read({"image_tower": "frozen", **given})
        trained = set(method.freeze(method.start(tiny_encoder).model))
        top = {name for name in trained if not name.startswith("text.language.")}
        assert top == {
            "logit_scale",
            *(f"text.projection.{place}.{kind}" for place in (0, 2) for kind in ("weight", "bias")),
        }
        assert {name.split(".")[4] for name in trained - top} == inside
