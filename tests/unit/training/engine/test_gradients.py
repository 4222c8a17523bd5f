"""Gradients are exact in micro-batches, their memory is one micro-batch's, and accumulated ones are a mean."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from components.encoders.adapter.images import normalise
from components.methods.contract.features import Features
from components.methods.contract.losses import info_nce
from components.training.engine.gradients import Passed, Towers, backward, evaluate
from components.training.rows.batches import Batch
from tests.support.toy_training import toy_batch, toy_model, toy_objective, trained


def _gradients(model: Any, batches: list[Batch], micro_batch: int | None = None, **changes: Any) -> dict[str, Tensor]:
    model.zero_grad()
    for batch in batches:
        backward(toy_objective(model, micro_batch, **changes), batch, lambda loss: loss / len(batches))
    return {name: weights.grad.clone() for name, weights in trained(model).items() if weights.grad is not None}


def _assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)


def _plain(model: Any, batch: Batch) -> Tensor:
    """The loss as autograd alone would differentiate it, through `encode_text` on the full context."""
    scale = model.logit_scale.exp()
    texts = {
        name: nn.functional.normalize(model.encode_text(torch.from_numpy(ids).long()), dim=-1)
        for name, ids in batch.tokens.items()
    }
    raw = model.encode_image(normalise(batch.pixels["image"])) if batch.pixels else batch.features["image"]
    image = nn.functional.normalize(raw, dim=-1)
    total = torch.zeros(())
    for one, other in ((image, texts["caption"]), (texts["caption"], texts["paraphrase"])):
        logits, own = scale * one @ other.T, torch.arange(len(one))
        total = total + (nn.functional.cross_entropy(logits, own) + nn.functional.cross_entropy(logits.T, own)) / 2
    return total


@pytest.mark.parametrize("micro_batch", [None, 1, 3, 5, 100])
def test_gradients_are_those_of_plain_autograd(micro_batch: int | None) -> None:
    model, batch = toy_model(), toy_batch(range(7))
    _plain(model, batch).backward()
    expected = {name: weights.grad.clone() for name, weights in trained(model).items()}
    _assert_close(_gradients(model, [batch], micro_batch), expected)
    assert "logit_scale" in expected


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_accumulated_gradients_are_the_mean_of_the_batches(micro_batch: int | None) -> None:
    model = toy_model()
    batches = [toy_batch(range(5)), toy_batch(range(5, 10))]
    one, other = (_gradients(model, [batch]) for batch in batches)
    expected = {name: (one[name] + other[name]) / 2 for name in one}
    _assert_close(_gradients(model, batches, micro_batch), expected)


@pytest.mark.parametrize("frozen", ["text", "image", "neither"])
@pytest.mark.parametrize("micro_batch", [None, 1, 2, 5])
def test_an_image_tower_can_train_beside_or_without_the_text_tower(frozen: str, micro_batch: int | None) -> None:
    model = toy_model()
    for name, weights in model.named_parameters():
        tower = "image" if name.startswith("visual.") else "text"
        weights.requires_grad_(tower != frozen)
    batch = toy_batch(range(6), features=(), pixels=("image",))
    _plain(model, batch).backward()
    expected = {name: weights.grad.clone() for name, weights in trained(model).items() if weights.grad is not None}
    towers = {"text": {True}, "image": {False}, "neither": {True, False}}
    assert {name.startswith("visual.") for name in expected} == towers[frozen]
    _assert_close(_gradients(model, [batch], micro_batch), expected)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_a_methods_own_tensors_can_be_all_that_trains(micro_batch: int | None) -> None:
    model = toy_model().requires_grad_(False)
    extra = nn.Linear(8, 2, bias=False)

    def losses(features: Features) -> dict[str, Tensor]:
        return {"only": features.extra(features["caption"].own).square().sum()}

    backward(toy_objective(model, micro_batch, extra=extra, losses=losses), toy_batch(range(4)), lambda loss: loss)
    assert extra.weight.grad is not None
    assert extra.weight.grad.abs().sum() > 0


class Alive:
    """Bytes that graphs of the towers hold, now and at most."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def pack(self, tensor: Tensor) -> _Kept:
        kept, size = _Kept(tensor), tensor.numel() * tensor.element_size()
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(kept, self._release, size)
        return kept

    def _release(self, size: int) -> None:
        self.now -= size


class _Kept:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


class CountingTowers(Towers):
    """Towers that note what autograd keeps of their passes."""

    def __init__(self, model: Any, alive: Alive) -> None:
        super().__init__(model, "cpu")
        self.alive = alive

    def forward(self, texts: Tensor | None, pixels: Tensor | None) -> Passed:
        with torch.autograd.graph.saved_tensors_hooks(self.alive.pack, lambda kept: kept.tensor):
            return super().forward(texts, pixels)


def _most_alive(rows: int, micro_batch: int | None) -> int:
    model, alive = toy_model(), Alive()
    for weights in model.parameters():
        weights.requires_grad_(weights.ndim > 0)
    batch = toy_batch(range(rows))
    # Texts of one length, so that every piece keeps as much as any other.
    for ids, lengths in zip(batch.tokens.values(), batch.lengths.values(), strict=True):
        ids[:] = ids[:1]
        lengths[:] = lengths[:1]
    backward(toy_objective(model, micro_batch, towers=CountingTowers(model, alive)), batch, lambda loss: loss)
    assert alive.now == 0
    return alive.most


def test_only_one_micro_batch_has_a_graph_at_a_time() -> None:
    alone = _most_alive(2, None)
    assert alone > 0
    assert _most_alive(8, 4) == alone
    assert _most_alive(32, 4) == alone
    assert _most_alive(32, None) > 8 * alone


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_losses_are_reported_by_name_with_the_tokens(micro_batch: int | None) -> None:
    model, batch = toy_model(), toy_batch(range(6))
    outcome = backward(toy_objective(model, micro_batch), batch, lambda loss: loss)
    assert list(outcome.losses) == ["l1", "l2"]
    assert float(sum(outcome.losses.values())) == pytest.approx(float(_plain(model, batch).detach()), rel=1e-5)
    assert outcome.tokens == sum(int(lengths.sum()) for lengths in batch.lengths.values())
    assert not any(loss.requires_grad for loss in outcome.losses.values())


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_evaluating_gives_the_same_losses_and_no_gradient(micro_batch: int | None) -> None:
    model, batch = toy_model(), toy_batch(range(6))
    found = evaluate(toy_objective(model, micro_batch), batch)
    assert all(weights.grad is None for weights in model.parameters())
    assert not any(loss.requires_grad for loss in found.values())
    outcome = backward(toy_objective(model), batch, lambda loss: loss)
    assert {name: float(loss) for name, loss in found.items()} == pytest.approx(
        {name: float(loss) for name, loss in outcome.losses.items()}, rel=1e-5
    )


def test_columns_keep_their_names_and_rows() -> None:
    """Texts go through the towers sorted by length; a loss must find them in the batch's order again."""
    model, batch = toy_model(), toy_batch(range(9), texts=("negation", "caption"), features=("image",))
    seen: dict[str, Tensor] = {}

    def losses(features: Features) -> dict[str, Tensor]:
        seen.update({name: features.raw(name).all.detach() for name in features.columns})
        return {"any": info_nce(features["caption"], features["negation"], features.scale)}

    backward(toy_objective(model, 4, losses=losses), batch, lambda loss: loss)
    for name, ids in batch.tokens.items():
        torch.testing.assert_close(seen[name], model.encode_text(torch.from_numpy(ids).long()).detach())
    assert torch.equal(seen["image"], batch.features["image"])
