"""Gradients are exact in micro-batches, whose memory is one micro-batch's; every text and image is computed once."""

from __future__ import annotations

import math
import shutil
import sysconfig
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from components.encoders.adapter.encoder import Encoder
from components.encoders.adapter.images import CLIP
from components.encoders.adapter.tokens import HuggingFaceTokenizer
from components.training.engine.gradients import Passed, Teacher, Towers, backward, cut, evaluate
from components.training.methods.contract.losses import Features, info_nce
from components.training.rows.batches import Batch
from tests.support.toy_training import CONTEXT, toy_batch, toy_model, toy_objective, trained

BATCH = toy_batch(range(3), features=(), pixels=("image",))
CAN_COMPILE = shutil.which("g++") is not None and Path(sysconfig.get_path("include"), "Python.h").is_file()
TEXTS, PIXELS = torch.from_numpy(BATCH.tokens["caption"]).long(), BATCH.pixels["image"]


def test_mixed_precision_gives_float32_features_that_are_near() -> None:
    model = toy_model()
    exact, mixed = Towers(model, "cpu"), Towers(model, "cpu", torch.bfloat16)
    for found, expected in zip(mixed(TEXTS, PIXELS), exact(TEXTS, PIXELS), strict=True):
        assert found.dtype == torch.float32
        assert not torch.equal(found, expected)
        torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)


@pytest.mark.parametrize(
    ("autocast", "gradients", "fused"),
    [(None, True, True), (torch.bfloat16, False, True), (torch.bfloat16, True, False)],
)
def test_bfloat16_does_without_fused_attention(autocast: torch.dtype | None, gradients: bool, fused: bool) -> None:
    with torch.profiler.profile() as profile, torch.set_grad_enabled(gradients):
        Towers(toy_model(), "cpu", autocast)(TEXTS, PIXELS)
    assert any("flash_attention" in event.key for event in profile.key_averages()) == fused


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


NAMES = ("caption", "difference", "negation")
BATCHES = st.builds(
    lambda rows, texts, images: toy_batch(range(rows), NAMES[:texts], (), ("image", "other_image")[:images]),
    st.integers(1, 9),
    st.integers(0, 3),
    st.integers(0, 2),
)
SIZES = st.none() | st.integers(1, 12)


def _all(columns: Any) -> np.ndarray:  # type: ignore[type-arg]
    return np.concatenate([columns[name] for name in sorted(columns)]) if columns else np.zeros((0, CONTEXT))


@given(BATCHES, SIZES)
def test_a_batch_is_cut_into_as_few_pieces_as_possible_longest_texts_first(batch: Batch, size: int | None) -> None:
    pieces, rows = cut(batch, size), len(batch.ids)
    most = max(len(batch.tokens), len(batch.pixels)) * rows
    assert len(pieces) == (max(1, math.ceil(most / size)) if size else 1)
    for found, columns in (("text_rows", len(batch.tokens)), ("pixel_rows", len(batch.pixels))):
        assert sorted(torch.cat([getattr(piece, found) for piece in pieces]).tolist()) == list(range(columns * rows))
    shortest = CONTEXT
    for piece in pieces:
        texts, pixels = piece.text_rows.numpy(), piece.pixel_rows.numpy()
        assert max(len(texts), len(pixels)) <= (size or most)
        assert (piece.texts is None, piece.pixels is None) == (not len(texts), not len(pixels))
        lengths = _all(batch.lengths)[texts]
        assert piece.lengths.tolist() == lengths.tolist()
        if piece.texts is not None:
            assert np.array_equal(piece.texts.numpy(), _all(batch.tokens)[texts, : lengths.max()])
            assert lengths.max() <= shortest
            shortest = lengths.min()
        if piece.pixels is not None:
            assert np.array_equal(piece.pixels.numpy(), _all(batch.pixels)[pixels])
    # DDP averages gradients in the last pass, so it needs both towers.
    assert (pieces[-1].texts is not None, pieces[-1].pixels is not None) == (bool(batch.tokens), bool(batch.pixels))


def _gradients(model: Any, batches: list[Batch], micro_batch: int | None = None, **changes: Any) -> dict[str, Tensor]:
    model.zero_grad()
    for batch in batches:
        backward(toy_objective(model, micro_batch, **changes), batch, lambda loss: loss / len(batches))
    return {name: weights.grad.clone() for name, weights in trained(model).items() if weights.grad is not None}


def _assert_close(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        # Sums of float32 round by the size of what is summed, however small they come out; processors differ in it.
        largest = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6 * largest)


def _logged(rows: int) -> Batch:
    """A batch of a query log: row i weighs i + 1, and the first two rows are of one query."""
    weights, alike = torch.arange(1.0, rows + 1), torch.zeros(rows, rows, dtype=torch.bool)
    alike[[0, 1], [1, 0]] = True
    return replace(toy_batch(range(rows)), weights=weights / weights.mean(), alike=alike)


def _plain(model: Any, batch: Batch) -> Tensor:
    """The loss as autograd would differentiate it without micro-batches, through `encode_text` on the full context."""
    rows = {name: model.encode_text(torch.from_numpy(ids).long()) for name, ids in batch.tokens.items()}
    rows["image"] = (
        model.encode_image(CLIP.normalise(batch.pixels["image"])) if batch.pixels else batch.features["image"]
    )
    unit = {name: nn.functional.normalize(features, dim=-1) for name, features in rows.items()}
    places, weights = torch.arange(len(batch.ids)), torch.ones(len(batch.ids))
    if batch.weights is not None:
        weights = places + 1.0
    total = torch.zeros(())
    for first, second in (("image", "caption"), ("caption", "paraphrase")):
        logits = model.logit_scale.exp() * unit[first] @ unit[second].T
        if batch.alike is not None:
            # The first two rows' chances against each other are zero.
            logits = logits - 1e9 * nn.functional.pad(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), (0, len(places) - 2) * 2)
        losses = sum(nn.functional.cross_entropy(side, places, reduction="none") for side in (logits, logits.T))
        total = total + (weights * losses).sum() / weights.sum() / 2
    return total


@pytest.mark.parametrize("micro_batch", [None, 1, 3, 5, 100])
@pytest.mark.parametrize("batch", [toy_batch(range(7)), _logged(7)], ids=["plain", "weighted"])
def test_gradients_are_those_of_plain_autograd(batch: Batch, micro_batch: int | None) -> None:
    model = toy_model()
    loss = _plain(model, batch)
    loss.backward()
    expected = {name: weights.grad.clone() for name, weights in trained(model).items()}
    assert "logit_scale" in expected
    _assert_close(_gradients(model, [batch], micro_batch), expected)
    losses = evaluate(toy_objective(model, micro_batch), batch)
    assert float(sum(losses.values())) == pytest.approx(float(loss.detach()), rel=1e-5)


def test_a_neighbour_is_not_of_the_same_query_as_the_rows_caption() -> None:
    batch = _logged(4)
    seen: dict[str, bool] = {}

    def losses(found: Features) -> dict[str, Tensor]:
        seen.update({name: column.alike is not None for name, column in found.columns.items()})
        return {"any": info_nce(found["caption"], found["neighbour.image"], found.scale)}

    features = dict(batch.features) | {"neighbour.image": batch.features["image"]}
    backward(toy_objective(toy_model(), losses=losses), replace(batch, features=features), lambda loss: loss)
    assert seen == {"caption": True, "paraphrase": True, "image": True, "neighbour.image": False}


@pytest.mark.parametrize("frozen", ["text", "image", "neither"])
@pytest.mark.parametrize("micro_batch", [None, 1, 2, 5])
def test_an_image_tower_can_train_with_or_without_the_text_tower(frozen: str, micro_batch: int | None) -> None:
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


class CountingTowers(Towers):
    """Towers that count the bytes that autograd keeps of their passes, now and at most."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, "cpu")
        self.now = self.most = 0

    def forward(self, *given: Any) -> Passed:
        with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda kept: kept()):
            return super().forward(*given)

    def _keep(self, tensor: Tensor) -> Callable[[], Tensor]:
        def kept() -> Tensor:
            return tensor

        self._add(tensor.numel() * tensor.element_size())
        weakref.finalize(kept, self._add, -tensor.numel() * tensor.element_size())
        return kept

    def _add(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


def _most_kept(rows: int, micro_batch: int | None) -> int:
    towers, batch = CountingTowers(toy_model()), toy_batch(range(rows))
    towers.model.requires_grad_(True)
    # Texts of one length, so that every piece keeps as much as any other.
    for ids, lengths in zip(batch.tokens.values(), batch.lengths.values(), strict=True):
        ids[:], lengths[:] = ids[:1], lengths[:1]
    backward(toy_objective(towers.model, micro_batch, towers=towers), batch, lambda loss: loss)
    assert towers.now == 0
    return towers.most


def test_only_one_micro_batch_has_a_graph_at_a_time() -> None:
    single = _most_kept(2, None)
    assert single > 0
    assert _most_kept(8, 4) == _most_kept(32, 4) == single
    assert _most_kept(32, None) > 8 * single


@pytest.mark.parametrize("micro_batch", [None, 3])
def test_training_reports_losses_and_tokens_and_evaluation_the_same_losses(micro_batch: int | None) -> None:
    model, batch = toy_model(), toy_batch(range(6))
    found = evaluate(toy_objective(model, micro_batch), batch)
    assert all(weights.grad is None for weights in model.parameters())
    outcome = backward(toy_objective(model, micro_batch), batch, lambda loss: loss)
    assert list(outcome.losses) == ["l1", "l2"]
    assert not any(loss.requires_grad for loss in (*outcome.losses.values(), *found.values()))
    assert outcome.tokens == sum(int(lengths.sum()) for lengths in batch.lengths.values())
    torch.testing.assert_close(found, outcome.losses, rtol=1e-5, atol=0)


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_the_base_reads_other_tokens(micro_batch: int | None, tiny_encoder: Encoder, language_model: Path) -> None:
    other = HuggingFaceTokenizer(language_model, 16)
    size, tokens = tiny_encoder.sidecar.preparation.size, other(["a red dog", "two boats", "a tree under a cat"])
    pixels = torch.randint(0, 256, (3, 3, size, size), dtype=torch.uint8)
    seen: dict[str, Tensor] = {}

    def losses(features: Features) -> dict[str, Tensor]:
        seen.update({name: features.raw(name).all for name in features.columns if name.startswith("base.")})
        return {}

    batch = Batch(BATCH.ids, {"caption": tokens}, {"caption": other.lengths(tokens)}, {}, {"image": pixels}, 0)
    teacher = Teacher.of(tiny_encoder, other)
    evaluate(toy_objective(tiny_encoder.model, micro_batch, losses=losses, teacher=teacher), batch)
    expected = tiny_encoder.raw_texts(other.texts(tokens)), tiny_encoder.raw_pixels(pixels)
    for name, rows in zip(("base.caption", "base.image"), expected, strict=True):
        np.testing.assert_allclose(seen.pop(name), rows, atol=1e-5)
    assert not seen
