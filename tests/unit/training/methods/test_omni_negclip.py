"""Omni-NegCLIP: its four terms by hand, and the blocks that it trains."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from components.encoders.adapter.encoder import Encoder
from components.training.methods.contract.losses import Sigmoid
from components.training.methods.omni_negclip import METHOD
from tests.conftest import TINY
from tests.unit.training.methods.examples import SCALE, as_features, losses_of, picking, random_columns, unit

COLUMNS = random_columns(METHOD.read({}).columns)
IMAGE, CAPTION, NEGATED, ABSENCE = (unit(COLUMNS[name]) for name in ("image", "caption", "negated_term", "absence"))


def test_the_terms_by_hand() -> None:
    right, wrong = (SCALE * (IMAGE * texts).sum(axis=1) for texts in (CAPTION, NEGATED))
    chosen = np.log1p(np.exp(wrong - right)).mean()
    margin = np.maximum((CAPTION * ABSENCE).sum(axis=1) + 0.3, 0).mean()
    presence = (picking(IMAGE, CAPTION, NEGATED) + picking(CAPTION, IMAGE) + chosen) / 3
    weights = {"absence_weight": 2, "caption_weight": 0.5, "margin_weight": 3, "margin": 0.3}
    assert losses_of({"method": "omni_negclip"} | weights, COLUMNS) == pytest.approx(
        {
            "presence": presence,
            "absence": picking(IMAGE, ABSENCE) + picking(ABSENCE, IMAGE),
            "caption": 0.5 * (picking(IMAGE, CAPTION) + picking(CAPTION, IMAGE)),
            "margin": 6 * margin,
        }
    )


def test_with_a_logit_bias_each_pair_is_judged_alone() -> None:
    sigmoid = Sigmoid(torch.tensor(SCALE), torch.tensor(-2.0))
    found = METHOD.read({}).losses(replace(as_features(COLUMNS), scale=sigmoid))["presence"].item()
    texts = torch.from_numpy(np.concatenate([CAPTION, NEGATED]))
    logits = SCALE * torch.from_numpy(IMAGE) @ texts.T - 2
    matches = torch.eye(8, 16, dtype=torch.float64)
    each = F.binary_cross_entropy_with_logits(logits, matches, reduction="none")
    own = each.diagonal().sum() + each.diagonal(8).sum()
    assert found == pytest.approx(((each.sum() + each[:, :8].sum() + own) / 8 / 3).item())


@pytest.mark.parametrize("custom", [False, True])
def test_the_first_blocks_train_and_the_last_do_not(custom: bool) -> None:
    text = TINY["text_cfg"] | {"layers": 12}
    model = Encoder.create("base", "tiny", TINY | {"text_cfg": text, "custom_text": custom}, "clip").model
    trained = METHOD.read({"front_blocks": 2}).freeze(model)
    start = "text." if custom else ""
    frozen = {name for name, _ in model.named_parameters() if name not in trained and not name.startswith("visual.")}
    blocks = {name.removeprefix(f"{start}transformer.resblocks.").partition(".")[0] for name in frozen}
    assert blocks == {str(number) for number in range(2, 12)}
    others = {f"{start}{name}" for name in ("token_embedding.weight", "positional_embedding", "text_projection")}
    assert others | {f"{start}ln_final.weight", "logit_scale"} <= set(trained)
    assert not any(name.startswith("visual.") for name in trained)
