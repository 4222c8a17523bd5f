"""The baseline starts from nothing but the shapes of the base."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from components.core.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.methods import adapted_lm
from components.methods.clip_scratch import METHOD
from tests.unit.methods.examples import losses_of, picking, random_columns, unit


def test_settings_are_those_of_the_adapted_models() -> None:
    ours, theirs = METHOD.settings({}), adapted_lm.METHOD.settings({})
    assert all(getattr(theirs, name) == value for name, value in vars(ours).items())


def test_the_loss_is_clips() -> None:
    columns = random_columns(("image", "caption"))
    image, text = unit(columns["image"]), unit(columns["caption"])
    expected = (picking(image, text) + picking(text, image)) / 2
    assert losses_of({"method": "clip_scratch"}, columns) == pytest.approx({"infonce": expected})


def test_everything_is_new_and_everything_trains(tiny_encoder: Encoder) -> None:
    before = {name: weights.clone() for name, weights in tiny_encoder.model.state_dict().items()}
    tiny_encoder.model.logit_scale.data.fill_(4.0)
    hyper = METHOD.settings({})
    torch.manual_seed(9)
    encoder = METHOD.start(tiny_encoder, hyper)
    after = encoder.model.state_dict()
    assert {name: weights.shape for name, weights in after.items()} == {n: w.shape for n, w in before.items()}
    kept = {name for name, weights in after.items() if weights.ndim > 1 and torch.equal(weights, before[name])}
    assert kept == set()
    assert float(encoder.model.logit_scale.detach()) == pytest.approx(2.6593, abs=1e-4)
    assert set(METHOD.freeze(encoder.model, hyper)) == set(after)


def test_a_frozen_image_tower_stays_the_bases(tiny_encoder: Encoder) -> None:
    hyper = METHOD.settings({"image_tower": "frozen"})
    encoder = METHOD.start(tiny_encoder, hyper)
    assert encoder.image_tower_hash() == tiny_encoder.image_tower_hash()
    assert not any(name.startswith("visual.") for name in METHOD.freeze(encoder.model, hyper))


def test_a_base_with_a_language_model_starts_from_nothing_too(tmp_path: Path, tiny_encoder: Encoder) -> None:
    base = adapted_lm.METHOD.start(tiny_encoder, adapted_lm.METHOD.settings({"strategy": "frozen"}))
    fresh = METHOD.start(base, METHOD.settings({"image_tower": "frozen"}))
    ours, theirs = (encoder.model.text.language.embeddings.word_embeddings.weight for encoder in (fresh, base))
    assert ours.shape == theirs.shape
    assert not torch.equal(ours, theirs)
    fresh.save(tmp_path / "fresh")
    assert Encoder.load(tmp_path / "fresh").tokenizer.identity == base.tokenizer.identity


def test_a_tower_of_batch_statistics_starts_from_published_weights_alone(tiny_encoder: Encoder) -> None:
    resnet = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}
    config = tiny_encoder.sidecar.architecture | {"vision_cfg": resnet}
    base = Encoder.create("base", "tiny-resnet", config, "clip")
    with pytest.raises(InputError, match=r"'tiny-resnet' normalises by batch statistics.* cannot start at random"):
        METHOD.start(base, METHOD.settings({}))
    METHOD.start(base, METHOD.settings({"image_tower": "frozen"}))
