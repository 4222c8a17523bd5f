"""Every kind of text tower gives open_clip's features and gradients for shortened and packed batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import open_clip
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.text_tower import Packing, can_pack, end_states, text_features
from components.encoders.adapter.tokens import trimmed
from tests.conftest import TINY

TEXTS = ["a dog", "two small hats on a long red sofa", "a"]
ARTICLE = 320
"""The id of "a", an end token that is not the highest id of its text."""


def _encoder(kind: str, folders: dict[str, Path]) -> Encoder:
    text: dict[str, Any] = {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
    if kind == "end token":
        text |= {"pool_type": "eos", "eos_id": ARTICLE, "proj_bias": True}
    if kind == "other blocks":
        text |= {"qk_norm": True}
    if kind in folders:
        text = {"context_length": 24, "hf_model_name": str(folders[kind]), "hf_pooler_type": "mean_pooler"}
    config = {"embed_dim": 16, "vision_cfg": TINY["vision_cfg"], "text_cfg": text, "custom_text": kind != "flat"}
    torch.manual_seed(0)
    return Encoder.create("tiny", "tiny", config, "test")


@pytest.mark.parametrize("kind", ["flat", "custom", "end token", "other blocks", "bert", "roberta"])
def test_trimmed_features_equal_open_clips_on_the_full_context(kind: str, language_folders: dict[str, Path]) -> None:
    encoder = _encoder(kind, language_folders)
    tokens = encoder.tokenizer(TEXTS)
    batch = trimmed(tokens, encoder.tokenizer.lengths(tokens))
    assert batch.shape[1] < 24
    theirs = encoder.model.encode_text(torch.from_numpy(tokens.astype("int64")))
    features = text_features(encoder.model, batch)
    assert torch.allclose(features, theirs, atol=1e-6)
    assert not torch.allclose(theirs[0], theirs[1], atol=1e-3)
    features.sum().backward()
    without = {name for name, parameter in encoder.model.named_parameters() if parameter.grad is None}
    assert {name.split(".")[0] for name in without} == {"visual", "logit_scale"}


CONTEXT, END, WIDTH = 12, 99, 32
TEXT: dict[str, Any] = {"context_length": CONTEXT, "vocab_size": END + 1, "width": WIDTH, "heads": 4, "layers": 3}


def _tower(**changes: Any) -> Any:
    torch.manual_seed(0)
    tower = open_clip.CustomTextCLIP(16, TINY["vision_cfg"], TEXT | changes, quick_gelu=True).text
    # Fresh biases are zero and would hide one that is left out.
    for name, parameter in tower.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    return tower


def _tokens(lengths: list[int], filler: int = 0) -> Tensor:
    tokens = torch.full((len(lengths), CONTEXT), filler)
    drawn = torch.randint(1, END, tokens.shape, generator=torch.Generator().manual_seed(1))
    for row, length in enumerate(lengths):
        tokens[row, :length] = drawn[row, :length]
        tokens[row, length - 1] = END
    return tokens


def _packed(tower: Any, tokens: Tensor) -> Tensor:
    found: Tensor = tower.ln_final(end_states(tower, tokens, tokens.argmax(dim=-1))) @ tower.text_projection
    return found


def _gradients(tower: Any, features: Tensor) -> dict[str, Tensor]:
    tower.zero_grad()
    weights = torch.randn(features.shape, generator=torch.Generator().manual_seed(2))
    (features * weights).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in tower.named_parameters()}


@settings(max_examples=25)
@given(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=6))
def test_features_and_gradients_equal_open_clips(lengths: list[int]) -> None:
    tower, tokens = _tower(), _tokens(lengths)
    theirs, ours = tower(tokens), _packed(tower, tokens)
    assert torch.allclose(ours, theirs, atol=1e-5)
    expected, found = _gradients(tower, theirs), _gradients(tower, ours)
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 1e-5 * (1 + gradient.norm()), name


@given(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=6), st.integers(1, 16))
def test_packing_is_the_inverse_of_padding_and_filling_up_changes_nothing(lengths: list[int], multiple: int) -> None:
    ends, places = torch.tensor(lengths) - 1, len(lengths) * max(lengths)
    plain, filled = Packing.of(ends), Packing.of(ends, multiple)
    assert len(plain.places) == sum(lengths)
    assert len(filled.places) == min(-(-sum(lengths) // multiple) * multiple, places)
    assert set(plain.places.tolist()) <= set(filled.places.tolist())
    assert filled.places[filled.ends].tolist() == plain.places[plain.ends].tolist()
    assert (filled.lengths.tolist(), filled.length) == (lengths, max(lengths))
    rows = torch.arange(1.0, sum(lengths) + 1)[:, None]
    padded = plain.padded(rows)
    assert padded.shape == (len(lengths), max(lengths), 1)
    assert torch.equal(plain.packed(padded), rows)
    assert [int((text > 0).sum()) for text in padded] == lengths
    assert rows[plain.ends, 0].tolist() == [float(text.max()) for text in padded]


@settings(max_examples=25)
@given(st.lists(st.integers(1, CONTEXT), min_size=1, max_size=12))
def test_in_mixed_precision_shapes_repeat_and_features_stay(lengths: list[int]) -> None:
    tower, tokens, rows = _tower(), _tokens(lengths), []
    tower.transformer.resblocks[0].ln_1.register_forward_pre_hook(lambda _, given: rows.append(len(given[0])))
    plain = _packed(tower, tokens)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = _packed(tower, tokens)
    assert rows == [sum(lengths), min(-(-sum(lengths) // 64) * 64, len(lengths) * max(lengths))]
    assert torch.nn.functional.cosine_similarity(plain, mixed.float()).min() > 0.99


def test_only_plain_towers_are_packed_with_layer_scale_and_no_later_tokens() -> None:
    tower, tokens = _tower(ls_init_value=0.3), _tokens([3, 12, 7])
    assert torch.allclose(_packed(tower, tokens), tower(tokens), atol=1e-5)
    assert torch.equal(_packed(tower, tokens), _packed(tower, _tokens([3, 12, 7], filler=5)))
    tokens = _tokens([3])
    assert can_pack(_tower(), tokens)
    assert not can_pack(_tower(), tokens.to("meta"))
    assert not can_pack(_tower(qk_norm=True), tokens)


def test_gradients_do_not_depend_on_chance() -> None:
    tower, tokens = _tower(), _tokens([5] * 1024)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = (_gradients(tower, _packed(tower, tokens)) for _ in range(2))
    finally:
        torch.set_num_threads(threads)
    assert not [name for name in first if not torch.equal(first[name], second[name])]
