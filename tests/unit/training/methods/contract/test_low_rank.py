"""Differences of low rank that matrices of the text side learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from components.core.system.errors import InputError
from components.encoders.adapter import low_rank, text_tower
from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.text_tower import encode_tokens
from components.training.methods.contract.low_rank import add_low_rank, merge_low_rank
from components.training.methods.registry import find_method
from tests.conftest import TINY

TOKENS = torch.tensor([[49406, 320, 2368, 49407, 0, 0], [49406, 1929, 530, 320, 2368, 49407]])


def _trained() -> tuple[Encoder, dict[str, torch.nn.Parameter]]:
    torch.manual_seed(0)
    encoder = Encoder.create("base", "tiny", TINY, "test")
    method = find_method("paraclip")
    return encoder, method.freeze(encoder.model, method.settings({}))


def test_training_begins_with_the_features_of_the_encoder() -> None:
    encoder, whole = _trained()
    before = encode_tokens(encoder.model, TOKENS)
    trained = add_low_rank(encoder.model, whole, rank=2, alpha=4)
    torch.testing.assert_close(encode_tokens(encoder.model, TOKENS), before)
    assert {name.rpartition(".")[2] for name in trained} == {"down", "up", "logit_scale"}
    # Four matrices in each block, and the projection, of two factors each.
    blocks = TINY["text_cfg"]["layers"]
    assert len(trained) == 1 + 2 * (4 * blocks + 1)


def test_a_rank_above_that_of_a_matrix_is_refused() -> None:
    encoder, whole = _trained()
    with pytest.raises(InputError, match="lora_rank 17 exceeds the rank of a trained matrix: set it to 16 or less"):
        add_low_rank(encoder.model, whole, rank=17, alpha=4)
    assert add_low_rank(encoder.model, whole, rank=16, alpha=4)


def test_merging_keeps_the_features_and_the_names() -> None:
    encoder, whole = _trained()
    names, frozen = set(encoder.model.state_dict()), {name: weights.clone() for name, weights in whole.items()}
    trained = add_low_rank(encoder.model, whole, rank=2, alpha=4)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weights in trained.items():
            if name != "logit_scale":
                weights.normal_(std=0.1)
    learnt = encode_tokens(encoder.model, TOKENS)
    merge_low_rank(encoder.model)
    merged = {name: weights for name, weights in whole.items() if not torch.equal(weights, frozen[name])}
    torch.testing.assert_close(encode_tokens(encoder.model, TOKENS), learnt)
    assert set(encoder.model.state_dict()) == names
    tables = {"token_embedding.weight", "positional_embedding"}
    assert set(merged) == {name for name, weights in whole.items() if weights.ndim == 2} - tables
    for name, weights in merged.items():
        assert torch.linalg.matrix_rank(weights - frozen[name], rtol=1e-4) == 2


def test_the_difference_is_alpha_over_rank_times_the_product() -> None:
    encoder, whole = _trained()
    before = encoder.model.text_projection.detach().clone()
    trained = add_low_rank(encoder.model, whole, rank=2, alpha=6)
    down, up = (trained[f"parametrizations.text_projection.0.{factor}"] for factor in ("down", "up"))
    with torch.no_grad():
        up.fill_(1.0)
    torch.testing.assert_close(encoder.model.text_projection, before + 3 * up @ down)


def _sum_of_both(x: Tensor, module: nn.Module, name: str, bias: Any, rows: slice | None = None) -> Tensor:
    return F.linear(x, getattr(module, name)[rows or slice(None)], bias)


def _gradients() -> tuple[dict[str, Tensor], int]:
    """Gradients of the differences, and the operations of a forward and a backward pass."""
    encoder, whole = _trained()
    trained = add_low_rank(encoder.model, whole, rank=2, alpha=4)
    torch.manual_seed(1)
    with torch.no_grad():
        for weights in trained.values():
            weights.normal_(std=0.1)
    with FlopCounterMode(display=False) as counter:
        (encode_tokens(encoder.model, TOKENS) * torch.arange(1.0, 3.0)[:, None]).square().sum(0)[0].backward()
    return {name: weights.grad for name, weights in trained.items() if weights.grad is not None}, (
        counter.get_total_flops()
    )


@pytest.mark.parametrize("packs", [True, False], ids=["packed", "padded"])
def test_gradients_are_those_of_the_sum_with_fewer_operations(packs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_tower, "can_pack", lambda *_: packs)
    found, operations = _gradients()
    for module in (low_rank, text_tower):
        monkeypatch.setattr(module, "product", _sum_of_both)
    expected, more = _gradients()
    assert len(expected) == 2 * (4 * TINY["text_cfg"]["layers"] + 1)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert operations < 0.8 * more
