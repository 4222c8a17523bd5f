"""Every kind of text tower gives the features that open_clip gives, however short the batch is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.text_tower import encode_tokens, text_features
from components.encoders.adapter.tokens import trimmed

TEXTS = ["a dog", "two small hats on a long red sofa", "a"]
ARTICLE = 320
"""The id of "a", an end token that is not the highest id of its text."""
VISION = {"image_size": 16, "layers": 1, "width": 32, "head_width": 16, "patch_size": 8}


def _encoder(kind: str, folders: dict[str, Path]) -> Encoder:
    text: dict[str, Any] = {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
    if kind == "end token":
        text |= {"pool_type": "eos", "eos_id": ARTICLE, "proj_bias": True}
    if kind in folders:
        text = {"context_length": 24, "hf_model_name": str(folders[kind]), "hf_pooler_type": "mean_pooler"}
    config = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": text, "custom_text": kind != "flat"}
    torch.manual_seed(0)
    return Encoder.create("tiny", "tiny", config, "test")


@pytest.mark.parametrize("kind", ["flat", "custom", "end token", "bert", "roberta"])
def test_trimmed_features_equal_open_clips_on_the_full_context(kind: str, language_folders: dict[str, Path]) -> None:
    encoder = _encoder(kind, language_folders)
    tokens = encoder.tokenizer(TEXTS)
    batch = trimmed(tokens, encoder.tokenizer.lengths(tokens))
    assert batch.shape[1] < 24
    theirs = encoder.model.encode_text(torch.from_numpy(tokens.astype("int64")))
    assert torch.allclose(text_features(encoder.model, batch), theirs, atol=1e-6)
    assert not torch.allclose(theirs[0], theirs[1], atol=1e-3)


@pytest.mark.parametrize("kind", ["flat", "custom", "roberta"])
def test_gradients_reach_the_text_tower(kind: str, language_folders: dict[str, Path]) -> None:
    encoder = _encoder(kind, language_folders)
    text_features(encoder.model, torch.from_numpy(encoder.tokenizer(TEXTS).astype("int64"))).sum().backward()
    without = {name for name, parameter in encoder.model.named_parameters() if parameter.grad is None}
    assert {name.split(".")[0] for name in without} == {"visual", "logit_scale"}


def test_unit_features_are_unit_vectors(tiny_encoder: Encoder) -> None:
    features = encode_tokens(tiny_encoder.model, torch.from_numpy(tiny_encoder.tokenizer(TEXTS).astype("int64")))
    assert torch.allclose(features.norm(dim=-1), torch.ones(3), atol=1e-6)
    assert not torch.allclose(features[0], features[2], atol=1e-3)
