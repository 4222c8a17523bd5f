"""Cutting a batch after its longest text changes nothing."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from components.encoders.encoder import Encoder
from components.encoders.text_tower import encode_tokens
from components.encoders.tokens import tokenize, trimmed

TEXTS = ["a dog", "a small flamingo to the left of a large bucket", "x"]


def test_trimmed_features_equal_open_clips_on_the_full_context(tiny_encoder: Encoder) -> None:
    tokens = tokenize(TEXTS, 24)
    batch = trimmed(tokens)
    assert batch.shape[1] < 24
    ours = encode_tokens(tiny_encoder.model, batch)
    theirs = F.normalize(tiny_encoder.model.encode_text(torch.from_numpy(tokens.astype("int64"))), dim=-1)
    assert torch.allclose(ours, theirs, atol=1e-6)


def test_features_are_unit_vectors_that_depend_on_the_text(tiny_encoder: Encoder) -> None:
    features = encode_tokens(tiny_encoder.model, trimmed(tokenize(TEXTS, 24)))
    assert torch.allclose(features.norm(dim=-1), torch.ones(3), atol=1e-6)
    assert not torch.allclose(features[0], features[2], atol=1e-3)
