"""NegCLIP's batch of hard texts and hard images."""

from __future__ import annotations

import math

import numpy as np
import pytest

from components.methods.negclip import METHOD
from tests.unit.methods.examples import SCALE, losses_of, picking, random_columns, unit

COLUMNS = random_columns(METHOD.columns(METHOD.settings({})))


def test_defaults_are_the_published_run() -> None:
    hyper = METHOD.settings({})
    assert (hyper.lr, hyper.batch_size, hyper.epochs, hyper.warmup_steps) == (1e-6, 256, 5, 50)
    assert hyper.image_tower == "trained"
    assert len(COLUMNS) == 6


def test_it_is_one_cross_entropy_over_doubled_images_and_quadrupled_texts() -> None:
    own, near = (
        [unit(COLUMNS[f"{prefix}{column}"]) for column in ("image", "caption", "hard_negative")]
        for prefix in ("", "neighbour.")
    )
    images = np.concatenate([own[0], near[0]])
    captions = np.concatenate([own[1], near[1]])
    negatives = np.concatenate([own[2], near[2]])
    assert losses_of({"method": "negclip"}, COLUMNS) == pytest.approx(
        {"image_to_text": picking(images, captions, negatives) / 2, "text_to_image": picking(captions, images) / 2}
    )


def test_without_hard_images() -> None:
    image, caption, negative = (unit(COLUMNS[column]) for column in ("image", "caption", "hard_negative"))
    assert losses_of({"method": "negclip", "hard_images": False}, COLUMNS) == pytest.approx(
        {"image_to_text": picking(image, caption, negative) / 2, "text_to_image": picking(caption, image) / 2}
    )
    assert METHOD.columns(METHOD.settings({"hard_images": False})) == {"image", "caption", "hard_negative"}


def test_a_hard_negative_like_its_caption_costs_the_log_of_two() -> None:
    # One row: image and caption agree, and so does the hard negative.
    row = {"image": [[1, 0]], "caption": [[1, 0]], "hard_negative": [[1, 0]]}
    losses = losses_of({"method": "negclip", "hard_images": False}, row)
    assert losses == pytest.approx({"image_to_text": math.log(2) / 2, "text_to_image": 0})
    row["hard_negative"] = [[0, 1]]
    losses = losses_of({"method": "negclip", "hard_images": False}, row)
    assert losses["image_to_text"] == pytest.approx(math.log(1 + math.exp(-SCALE)) / 2)
