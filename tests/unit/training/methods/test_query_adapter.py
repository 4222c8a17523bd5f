"""A query adapter learns to say in the old space what another encoder's text tower reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.training.methods.contract.losses import has_sigmoid_loss
from components.training.methods.query_adapter import METHOD
from components.training.methods.registry import find_method
from components.training.new_text_towers import with_language_tower, with_text_tower_of
from tests.conftest import TINY

TEXTS = ["a dog", "two cats on a sofa", "a red car"]


def _other(**changes: Any) -> Encoder:
    torch.manual_seed(5)
    text = TINY["text_cfg"] | {"context_length": 20}
    return Encoder.create("other", "other", TINY | {"text_cfg": text} | changes, "test")


def test_the_tower_is_the_other_ones_and_pictures_keep_their_vectors(tiny_encoder: Encoder, tmp_path: Path) -> None:
    other = _other()
    other.save(tmp_path / "other")
    adapted = METHOD.read({"encoder": str(tmp_path / "other")}).start(tiny_encoder)
    assert adapted.sidecar.embed_dim == tiny_encoder.sidecar.embed_dim
    assert adapted.sidecar.context_length == 20
    assert adapted.image_tower_hash() == tiny_encoder.image_tower_hash()
    trained = METHOD.read({}).freeze(adapted.model)
    assert set(trained) == {"text.text_projection.weight", "text.text_projection.bias"}
    # An affine map that is the other one's projection gives its features.
    own = _other().model.text_projection
    with torch.no_grad():
        adapted.model.text.text_projection = torch.nn.Linear(*own.shape)
        adapted.model.text.text_projection.weight.copy_(own.T)
        adapted.model.text.text_projection.bias.zero_()
    np.testing.assert_allclose(adapted.embed_texts(TEXTS), other.embed_texts(TEXTS), atol=1e-5)
    adapted.save(tmp_path / "adapted")


@pytest.mark.parametrize("built", ["query_adapter", "lm_text_tower", "clip_scratch", "base.fit"])
def test_a_new_text_tower_of_a_base_with_a_logit_bias_has_one(
    built: str, tmp_path: Path, language_folders: dict[str, Path]
) -> None:
    base = _other(init_logit_bias=-10.0)
    base.sidecar = base.sidecar.model_copy(update={"image_tower_sha256": base.image_tower_hash()})
    model = str(language_folders["bert"])
    given = {"language_model": model} if built == "lm_text_tower" else {}
    if built == "base.fit":
        encoder = with_language_tower(base, model, "finetuned")
    else:
        method = find_method(built)
        encoder = method.read({"image_tower": "frozen"} | given).start(base)
        learns = method.read({"image_tower": "frozen", "learn_logit_scale": True} | given)
        assert "logit_bias" in learns.freeze(encoder.model)
    assert has_sigmoid_loss(encoder.model)
    encoder.save(tmp_path / "saved")
    loaded = Encoder.load(tmp_path / "saved")
    assert loaded.sidecar.logit_bias
    assert loaded.model.logit_bias.item() == -10.0


def test_towers_that_cannot_be_combined_are_refused(tiny_encoder: Encoder, language_folders: dict[str, Path]) -> None:
    for other, words in (
        (_other(quick_gelu=True), "has QuickGELU: an encoder has one activation"),
        (
            with_language_tower(_other(), str(language_folders["bert"]), "frozen"),
            "is a language model: take an encoder",
        ),
    ):
        with pytest.raises(InputError, match=words):
            with_text_tower_of(tiny_encoder, other)
