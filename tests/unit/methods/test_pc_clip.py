"""PC-CLIP aligns a text with the difference of two images."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from components.core.system.errors import InputError
from components.methods.pc_clip import METHOD
from tests.unit.methods.examples import SCALE, as_features, losses_of, picking, random_columns, unit

COLUMNS = random_columns(("image", "other_image", "difference"))
DIRECTION = unit(unit(COLUMNS["image"]) - unit(COLUMNS["other_image"]))
TEXT = unit(COLUMNS["difference"])


def _loss(**given: Any) -> float:
    (value,) = losses_of({"method": "pc_clip", **given}, COLUMNS).values()
    return value


@pytest.mark.parametrize(("temperature", "scale"), [(1.0, 1.0), (0.5, 2.0), (None, SCALE)])
def test_infonce_is_equation_4(temperature: float | None, scale: float) -> None:
    expected = (picking(TEXT, DIRECTION, scale=scale) + picking(DIRECTION, TEXT, scale=scale)) / 2
    assert _loss(temperature=temperature) == pytest.approx(expected)


@pytest.mark.parametrize(("protocol", "expected"), [("paper", 1 + 9), ("released", (1 + 9) / (2 * 2))])
def test_mse_is_of_squared_distances_to_differences_of_any_length(protocol: str, expected: float) -> None:
    # Unit images differ by (1, -1) and by (0, 2), unit texts are (1, 0) and (0, -1): (0, 1) and (0, -3) are between.
    columns = {"image": [[4, 0], [0, 3]], "other_image": [[0, 2], [0, -1]], "difference": [[7, 0], [0, -5]]}
    found = losses_of({"method": "pc_clip", "loss": "mse", "protocol": protocol}, columns)
    assert found == pytest.approx({"mse": expected})


def test_antisymmetric_adds_reversed_differences_as_negatives_of_texts() -> None:
    expected = (picking(TEXT, DIRECTION, -DIRECTION, scale=1) + picking(DIRECTION, TEXT, scale=1)) / 2
    assert _loss(antisymmetric=True) == pytest.approx(expected)


def test_antisymmetric_pulls_a_single_pairs_text_to_the_right_side() -> None:
    image, other, text = (torch.tensor([row], dtype=torch.float64) for row in ([1.0, 0.0], [0.0, 1.0], [0.0, 1.0]))
    text.requires_grad_()
    features = as_features({"image": image, "other_image": other, "difference": text})
    (loss,) = METHOD.losses(features, METHOD.settings({"antisymmetric": True})).values()
    loss.backward()
    assert text.grad is not None
    assert text.grad @ torch.tensor([1.0, -1.0], dtype=torch.float64) < 0
    (plain,) = METHOD.losses(features, METHOD.settings({})).values()
    assert plain == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": "mse", "antisymmetric": True}, "has no negatives"),
        ({"learn_logit_scale": True}, "only with loss: infonce, temperature: null"),
        ({"learn_logit_scale": True, "loss": "mse", "temperature": None}, "only with loss: infonce"),
        ({"temperature": 0}, r"methods\.pc_clip\.temperature"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        METHOD.settings(given)
