"""Methods whose loss is CLIP's on columns of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.methods.caption_ft import METHOD as CAPTION_FT
from components.methods.laclip_ft import METHOD as LACLIP
from components.methods.negation_clip import METHOD as NEGATION_CLIP
from components.methods.paraclip import METHOD as PARACLIP
from components.methods.registry import find_method
from tests.conftest import TINY
from tests.unit.methods.examples import SCALE, losses_of, picking, random_columns, unit


def test_a_logit_scale_that_nothing_uses_cannot_be_learned() -> None:
    with pytest.raises(InputError, match="only with temperature: null"):
        CAPTION_FT.settings({"learn_logit_scale": True})
    assert CAPTION_FT.settings({"learn_logit_scale": True, "temperature": None}).learn_logit_scale


def test_every_text_of_a_row_is_as_likely() -> None:
    hyper = LACLIP.settings({"rewrites": ["rewrite", "paraphrase_1", "paraphrase_2"]})
    (drawn,) = LACLIP.columns(hyper) - {"image"}
    assert LACLIP.column_mixture(hyper) == {
        drawn: {"caption": 0.25, "rewrite": 0.25, "paraphrase_1": 0.25, "paraphrase_2": 0.25}
    }


def test_only_the_last_layer_norm_of_the_text_side_is_frozen() -> None:
    torch.manual_seed(0)
    model = Encoder.create("base", "tiny", TINY, "test").model
    trained = set(NEGATION_CLIP.freeze(model, NEGATION_CLIP.settings({})))
    every = {name for name, _ in model.named_parameters()}
    assert {"ln_final.weight", "ln_final.bias"} <= every
    assert every - trained == {"ln_final.weight", "ln_final.bias"} | {name for name in every if "visual." in name}
    assert {"logit_scale", "text_projection", "token_embedding.weight"} <= trained


PARACLIP_COLUMNS = random_columns(("image", "caption", "paraphrase_1", "paraphrase_2"))


@pytest.mark.parametrize(
    ("term", "one", "other"),
    [
        ("l1", "image", "caption"),
        ("l1_prime", "image", "paraphrase_1"),
        ("l1_second", "image", "paraphrase_2"),
        ("l2", "caption", "paraphrase_1"),
        ("l3", "paraphrase_1", "paraphrase_2"),
    ],
)
def test_each_term_contrasts_its_columns(term: str, one: str, other: str) -> None:
    left, right = unit(PARACLIP_COLUMNS[one]), unit(PARACLIP_COLUMNS[other])
    expected = (picking(left, right) + picking(right, left)) / 2
    assert losses_of({"method": "paraclip", "terms": [term]}, PARACLIP_COLUMNS) == pytest.approx({term: expected})
    assert PARACLIP.columns(PARACLIP.settings({"terms": [term]})) == {one, other}


@pytest.mark.parametrize(
    ("method", "text", "settings", "scale"),
    [
        ("lm_text_tower", "caption", {}, SCALE),
        ("clip_scratch", "caption", {}, SCALE),
        ("laclip_ft", "drawn_caption", {}, SCALE),
        ("negation_clip", "absence", {}, SCALE),
        ("caption_ft", "caption", {"temperature": 1.0}, 1.0),
        ("caption_ft", "rewrite", {"column": "rewrite", "temperature": 0.1}, 10.0),
        ("caption_ft", "rewrite", {"column": "rewrite", "temperature": None}, SCALE),
    ],
)
def test_images_are_contrasted_with_one_text(method: str, text: str, settings: dict[str, Any], scale: float) -> None:
    columns = random_columns(("image", text))
    image, texts = unit(columns["image"]), unit(columns[text])
    expected = (picking(image, texts, scale=scale) + picking(texts, image, scale=scale)) / 2
    assert losses_of({"method": method} | settings, columns) == pytest.approx({"infonce": expected})
    assert find_method(method).columns(find_method(method).settings(settings)) == {"image", text}


@pytest.mark.parametrize("method", ["caption_ft", "pc_clip"])
@pytest.mark.parametrize("scope", ["blocks", "tower"])
def test_the_scope_decides_whether_the_token_embeddings_train(method: str, scope: str, tiny_encoder: Encoder) -> None:
    hyper = find_method(method).settings({"scope": scope})
    trained = find_method(method).freeze(tiny_encoder.model, hyper)
    assert any(name.startswith("transformer.") for name in trained)
    assert ("token_embedding.weight" in trained) == (scope == "tower")
    assert "logit_scale" not in trained
