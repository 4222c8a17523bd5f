"""States below the first trained block are computed once per text, and gradients stay the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from components.encoders.adapter import text_tower
from components.encoders.adapter.architecture import build
from components.encoders.adapter.text_tower import frozen_depth, text_features
from components.training.engine.frozen_states import FrozenStates
from components.training.engine.gradients import Teacher, Towers, backward, evaluate
from components.training.engine.stepper import Stepper, make_optimiser
from components.training.methods.contract.losses import Features
from tests.support.toy_training import CONFIG, toy_batch, toy_objective, toy_run, trained

FIRST, OTHER = toy_batch(range(7)), toy_batch(range(4, 12))
LARGE = 10**6


def _model(trains: str = "resblocks.2", seed: int = 0) -> Any:
    """Three blocks; only parameters with `trains` in their names are trained."""
    torch.manual_seed(seed)
    model = build(CONFIG | {"text_cfg": CONFIG["text_cfg"] | {"layers": 3}}).eval()
    for name, weights in model.named_parameters():
        weights.requires_grad_(trains in name or name == "logit_scale")
    return model


def _gradients(micro_batch: int | None, size: int | None) -> dict[str, Tensor]:
    """Of two batches that share texts, one after the other, with `size` bytes for states; None computes all."""
    model = _model()
    states = None if size is None else FrozenStates(Towers(model, "cpu"), 2, size)
    for batch in (FIRST, OTHER):
        backward(toy_objective(model, micro_batch, frozen=states), batch, lambda loss: loss)
    return {name: weights.grad for name, weights in trained(model).items() if weights.grad is not None}


@pytest.mark.parametrize("packs", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("size", [0, 2000, LARGE])
@pytest.mark.parametrize("micro_batch", [None, 3])
def test_gradients_are_those_without_kept_states(
    micro_batch: int | None, size: int, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_tower, "can_pack", lambda *_: packs)
    expected = _gradients(micro_batch, None)
    assert len(expected) > 10
    found = _gradients(micro_batch, size)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert (gradient - expected[name]).norm() <= 1e-6 * expected[name].norm(), name


@pytest.mark.parametrize(("size", "times"), [(LARGE, 1), (0, 6)])
def test_frozen_blocks_run_once_per_text_or_in_each_pass_without_space(size: int, times: int) -> None:
    model, seen = _model(), []
    model.transformer.resblocks[0].ln_1.register_forward_hook(lambda _module, given, _found: seen.append(given[0]))
    states = FrozenStates(Towers(model, "cpu"), 2, size)
    for _ in range(3):
        backward(toy_objective(model, 4, frozen=states), FIRST, lambda loss: loss)
    tokens = sum(int(lengths.sum()) for lengths in FIRST.lengths.values())
    assert sum(len(rows) for rows in seen) == times * tokens
    assert not any(rows.requires_grad for rows in seen)


@pytest.mark.parametrize("shares", [False, True])
def test_a_base_with_another_text_tower_computes_its_own_states(shares: bool) -> None:
    model, other, seen = _model(), _model(seed=1), dict[str, Tensor]()
    tokenizer: Any = SimpleNamespace(identity="the same")
    teacher = Teacher(Towers(other, "cpu"), tokenizer, tokenizer, shares_blocks=shares)

    def losses(features: Features) -> dict[str, Tensor]:
        seen.update(found=features.raw("base.caption").all)
        return {}

    states = FrozenStates(Towers(model, "cpu"), 2, LARGE)
    evaluate(toy_objective(model, None, losses=losses, teacher=teacher, frozen=states), FIRST)
    with torch.no_grad():
        expected = text_features(other, torch.from_numpy(FIRST.tokens["caption"]))
    assert torch.allclose(seen["found"], expected, atol=1e-5) == (not shares)


@pytest.mark.parametrize(
    ("trains", "depth"),
    [("resblocks.2", 2), ("resblocks.1", 1), ("resblocks", 0), ("token_embedding", 0), ("text_projection", 2)],
)
def test_blocks_below_the_first_trained_parameter_are_frozen(trains: str, depth: int) -> None:
    model = _model(trains)
    assert frozen_depth(model) == depth


@pytest.mark.parametrize(("perturb", "kept"), [(None, True), (lambda tokens: tokens, False)])
def test_a_run_keeps_states_unless_its_texts_change(perturb: Any, kept: bool) -> None:
    run = toy_run(_model(), perturb=perturb)
    stepper = Stepper(run, make_optimiser(run.trained, run.optimisation), 1)
    assert (stepper._objective.frozen is not None) == kept
