"""CS-CLIP's loss on captions and on their parts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from components.methods.half_truths import METHOD
from tests.unit.methods.examples import SCALE, losses_of, picking, random_columns, unit

COLUMNS = random_columns(("image", "caption", "hard_negative", "unit", "unit_foil"))
IMAGE, CAPTION, NEGATIVE, UNIT, FOIL = (unit(rows) for rows in COLUMNS.values())


def test_defaults_are_the_released_configuration() -> None:
    hyper = METHOD.settings({})
    assert (hyper.lr, hyper.batch_size, hyper.epochs, hyper.weight_decay) == (5e-6, 128, 5, 0.01)
    assert (hyper.schedule, hyper.betas, hyper.eps, hyper.clip_gradient) == ("cosine", (0.9, 0.98), 1e-6, 1.0)
    assert hyper.unit_weight == 0.5
    assert hyper.image_tower == "trained"
    assert METHOD.columns(hyper) == frozenset(COLUMNS)


def test_captions_see_all_negatives_and_a_unit_its_own_foil() -> None:
    logits = SCALE * np.concatenate([IMAGE @ UNIT.T, (IMAGE * FOIL).sum(axis=1, keepdims=True)], axis=1)
    own = float(np.mean(np.log(np.exp(logits).sum(axis=1)) - np.diagonal(logits)))
    assert losses_of({"method": "half_truths"}, COLUMNS) == pytest.approx(
        {
            "image_to_text": picking(IMAGE, CAPTION, NEGATIVE) / 2,
            "text_to_image": picking(CAPTION, IMAGE) / 2,
            "image_to_unit": own / 4,
            "unit_to_image": picking(UNIT, IMAGE) / 4,
        }
    )


def test_a_foil_like_its_unit_costs_the_log_of_two() -> None:
    row = {"image": [[1, 0]], "caption": [[1, 0]], "hard_negative": [[0, 1]], "unit": [[1, 0]], "unit_foil": [[1, 0]]}
    losses = losses_of({"method": "half_truths", "unit_weight": 1}, row)
    assert losses["image_to_unit"] == pytest.approx(math.log(2) / 2)
    assert losses["unit_to_image"] == 0


def test_another_rows_foil_is_no_negative() -> None:
    # Both foils lie with the other row's image; each image sees its own foil alone, which is orthogonal to it.
    axes, turned = [[1, 0], [0, 1]], [[0, 1], [1, 0]]
    columns = {"image": axes, "caption": axes, "hard_negative": axes, "unit": axes, "unit_foil": turned}
    losses = losses_of({"method": "half_truths"}, columns)
    assert losses["image_to_unit"] == pytest.approx(math.log(1 + 2 * math.exp(-SCALE)) / 4)
