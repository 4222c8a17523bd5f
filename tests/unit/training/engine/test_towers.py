"""The towers as one module: features of what was given, in float32 whatever was computed in."""

from __future__ import annotations

import shutil
import sysconfig
from pathlib import Path

import pytest
import torch

from components.encoders.adapter.images import normalise
from components.training.engine.towers import Towers
from tests.support.toy_training import toy_batch, toy_model

BATCH = toy_batch(range(3), features=(), pixels=("image",))
CAN_COMPILE = shutil.which("g++") is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()
TEXTS, PIXELS = torch.from_numpy(BATCH.tokens["caption"]).long(), BATCH.pixels["image"]


def test_features_are_the_models_own() -> None:
    model = toy_model()
    texts, images = Towers(model, "cpu")(TEXTS, PIXELS)
    torch.testing.assert_close(texts, model.encode_text(TEXTS))
    torch.testing.assert_close(images, model.encode_image(normalise(PIXELS)))


def test_what_is_not_given_is_not_computed() -> None:
    towers = Towers(toy_model(), "cpu")
    assert towers(TEXTS, None)[1] is None
    assert towers(None, PIXELS)[0] is None


def test_mixed_precision_gives_float32_features_that_are_near() -> None:
    model = toy_model()
    exact, mixed = Towers(model, "cpu"), Towers(model, "cpu", torch.bfloat16)
    for found, expected in zip(mixed(TEXTS, PIXELS), exact(TEXTS, PIXELS), strict=True):
        assert found.dtype == torch.float32
        assert not torch.equal(found, expected)
        torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)


@pytest.mark.slow
@pytest.mark.skipif(not CAN_COMPILE, reason="torch.compile needs g++ and python3-dev: install them")
def test_compiled_towers_give_the_same_features_and_gradients() -> None:
    found = []
    for compiled in (False, True):
        model = toy_model().requires_grad_(True)
        features = Towers(model, "cpu", compiled=compiled)(TEXTS, PIXELS)
        torch.autograd.backward([rows.square().sum() for rows in features if rows is not None])
        found.append([*features, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)])
    plain, compiled_ones = found
    assert len(plain) > 4
    torch.testing.assert_close(compiled_ones, plain, rtol=1e-4, atol=1e-4)
