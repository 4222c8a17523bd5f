"""NegationCLIP's loss, and what of the encoder it trains."""

from __future__ import annotations

import math

import pytest
import torch

from components.encoders.adapter.encoder import Encoder
from components.methods.negation_clip import METHOD
from tests.conftest import TINY
from tests.unit.methods.examples import SCALE, losses_of, picking, random_columns, unit

COLUMNS = random_columns(("image", "absence"))


def test_defaults_are_the_released_codes() -> None:
    hyper = METHOD.settings({})
    assert (hyper.lr, hyper.batch_size, hyper.epochs, hyper.weight_decay) == (1e-6, 512, 15, 0.01)
    assert (hyper.schedule, hyper.warmup_steps, hyper.betas, hyper.eps) == ("constant", 0, (0.9, 0.999), 1e-8)
    assert hyper.decay_all
    assert hyper.image_tower == "frozen"
    assert METHOD.columns(hyper) == frozenset(COLUMNS)
    assert METHOD.visits(hyper) == "pairs"


def test_it_is_clips_loss_on_the_captions_that_say_what_is_absent() -> None:
    image, text = unit(COLUMNS["image"]), unit(COLUMNS["absence"])
    assert losses_of({"method": "negation_clip"}, COLUMNS) == pytest.approx(
        {"infonce": (picking(image, text) + picking(text, image)) / 2}
    )


def test_two_rows_by_hand() -> None:
    # Images and captions lie on two axes, each caption with its own image: the other one is `SCALE` logits below.
    axes = [[1, 0], [0, 1]]
    losses = losses_of({"method": "negation_clip"}, {"image": axes, "absence": axes})
    assert losses == pytest.approx({"infonce": math.log(1 + math.exp(-SCALE))})


def test_the_last_layer_norm_is_frozen_and_all_else_of_the_text_side_trains() -> None:
    torch.manual_seed(0)
    model = Encoder.create("base", "tiny", TINY, "test").model
    trained = set(METHOD.freeze(model, METHOD.settings({})))
    every = {name for name, _ in model.named_parameters()}
    assert {"ln_final.weight", "ln_final.bias"} <= every
    assert every - trained == {"ln_final.weight", "ln_final.bias"} | {name for name in every if "visual." in name}
    assert {"logit_scale", "text_projection", "token_embedding.weight"} <= trained
