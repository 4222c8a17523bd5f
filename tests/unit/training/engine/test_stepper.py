"""One step: warm-up and schedule, clipping, the logit scale's bounds, decay, and stopping before damage is done."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from components.core.compute.checkpoint import Checkpoints
from components.training.engine import meter as metering
from components.training.engine.gradients import MicroBatch, Towers
from components.training.engine.loop import fit
from components.training.engine.meter import Meter, Step
from components.training.engine.run import Run
from components.training.engine.stepper import Done, NonFiniteError, Stepper, make_optimiser, rate_factor
from components.training.methods.contract.losses import Features
from components.training.methods.contract.method import Optimisation
from components.training.rows.batches import Batch
from tests.support.toy_training import ToySource, same, toy_batch, toy_losses, toy_model, toy_run, trained, weights_of


def _factors(per_epoch: int, epochs: int, **plan: Any) -> list[float]:
    optimisation = Optimisation(lr=1.0, batch_size=1, epochs=epochs, **plan)
    return [rate_factor(optimisation, step, per_epoch) for step in range(per_epoch * epochs)]


def test_rates_warm_up_and_follow_their_schedule() -> None:
    factors = _factors(11, 10, warmup_steps=10)
    assert factors[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert factors[9] == factors[10] == 1.0
    assert factors[60] == pytest.approx(0.5)
    assert 0 < factors[-1] < 0.001
    assert all(later <= earlier for earlier, later in pairwise(factors[10:]))
    assert set(_factors(5, 4, schedule="constant")) == {1.0}
    assert _factors(4, 1, schedule="constant", warmup_steps=2) == [0.5, 1.0, 1.0, 1.0]
    rates = _factors(2, 3, schedule="exponential", gamma=0.5, warmup_steps=3)
    assert rates == pytest.approx([1 / 3, 2 / 3, 1, 0.5, 0.25, 0.25])
    run = toy_run(toy_model(), {"lr": 0.2, "warmup_steps": 2, "schedule": "constant"})
    stepper = _stepper(run)
    rates = []
    for _ in range(3):
        before = weights_of(run.model)["text_projection"]
        rates.append(stepper.step([FIRST], Meter("cpu")).lr)
        moved = (weights_of(run.model)["text_projection"] - before).abs().max()
        # AdamW moves no weight by more than about the learning rate.
        assert rates[-1] * 0.5 < moved < rates[-1] * 1.5
        stepper.state.advance(0)
    assert rates == pytest.approx([0.1, 0.2, 0.2])


FIRST, SECOND = toy_batch(range(4)), toy_batch(range(4, 8))


def _stepper(run: Run, per_epoch: int = 5) -> Stepper:
    return Stepper(run, make_optimiser(run.trained, run.optimisation), per_epoch)


def _step(model: Any, plan: dict[str, Any] | None = None, **changes: Any) -> Done:
    return _stepper(toy_run(model, plan, **changes)).step([FIRST], Meter("cpu"))


def _gradient(model: Any) -> Tensor:
    return torch.cat([weights.grad.flatten() for weights in trained(model).values() if weights.grad is not None])


def test_clipped_and_accumulated_gradients_are_as_reported() -> None:
    plain, clipped = toy_model(), toy_model()
    norm = _step(plain).gradient_norm
    assert norm == pytest.approx(float(_gradient(plain).norm()), rel=1e-5)
    assert _step(clipped, {"clip_gradient": norm / 10}).gradient_norm == pytest.approx(norm, rel=1e-5)
    torch.testing.assert_close(_gradient(clipped), _gradient(plain) / 10, rtol=1e-3, atol=1e-7)
    gradients = []
    for batches in ([FIRST], [SECOND], [FIRST, SECOND]):
        model = toy_model()
        norm = _stepper(toy_run(model, {"accumulate": len(batches)})).step(batches, Meter("cpu")).gradient_norm
        gradients.append(_gradient(model))
        assert norm == pytest.approx(float(gradients[-1].norm()), rel=1e-5)
    torch.testing.assert_close(gradients[2], (gradients[0] + gradients[1]) / 2, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("push", "bound"), [(1.0, math.log(100)), (-1.0, 0.0)])
def test_the_logit_scale_stays_within_its_bounds(push: float, bound: float) -> None:
    model = toy_model()
    model.logit_scale.data.fill_(bound)
    _step(model, {"lr": 0.5}, losses=lambda found: toy_losses(found) | {"push": -push * 1e3 * found.scale})
    assert float(model.logit_scale.detach()) == pytest.approx(bound)


def test_a_fixed_logit_scale_keeps_even_a_value_outside_the_bounds() -> None:
    model = toy_model()
    model.logit_scale.data.fill_(4.7)
    model.logit_scale.requires_grad_(False)
    _step(model, {"learn_logit_scale": False})
    assert model.logit_scale.item() == pytest.approx(4.7)


@pytest.mark.parametrize("decay_all", [False, True])
def test_weight_decay_spares_biases_norms_and_the_logit_scale_unless_all_decays(decay_all: bool) -> None:
    model = toy_model()
    plan = Optimisation(lr=1, batch_size=1, epochs=1, weight_decay=0.1, decay_all=decay_all)
    groups = make_optimiser(trained(model), plan).param_groups
    decay = {id(weights): group["weight_decay"] for group in groups for weights in group["params"]}
    found = {name: decay[id(weights)] for name, weights in trained(model).items()}
    assert found == {name: 0.1 if decay_all or weights.ndim > 1 else 0.0 for name, weights in trained(model).items()}
    assert {"logit_scale", "ln_final.weight", "transformer.resblocks.0.mlp.c_fc.bias"} <= found.keys()


def test_some_parameters_learn_at_a_rate_of_their_own() -> None:
    """Adam's first step is as long as the learning rate, in each element whose gradient is not zero."""
    model = toy_model()
    before = {name: weights.detach().clone() for name, weights in trained(model).items()}
    run = toy_run(model, {"lr": 0.01, "weight_decay": 0.0, "warmup_steps": 0})
    rates = {"transformer.": 0.1, "logit_scale": 3.0}
    Stepper(run, make_optimiser(run.trained, run.optimisation, rates), 5).step([FIRST], Meter("cpu"))
    moved = {name: float((weights.detach() - before[name]).abs().max()) for name, weights in trained(model).items()}
    for name, distance in moved.items():
        wanted = 0.01 * next((rate for start, rate in rates.items() if name.startswith(start)), 1.0)
        assert distance == pytest.approx(wanted, rel=0.02) or distance == 0, name
    assert moved["logit_scale"] == pytest.approx(0.03, rel=0.02)


def _not_finite(features: Features) -> dict[str, Tensor]:
    return toy_losses(features) | {"bad": features["caption"].own.sum() * float("nan")}


def _infinite_gradient(features: Features) -> dict[str, Tensor]:
    rows = features["caption"].own
    return toy_losses(features) | {"bad": torch.sqrt((rows - rows.detach()).square().sum())}


@pytest.mark.parametrize(("losses", "what"), [(_not_finite, "loss"), (_infinite_gradient, "gradient")])
def test_numbers_that_are_not_finite_stop_before_the_weights_change(losses: Any, what: str, tmp_path: Path) -> None:
    model = toy_model()
    run = toy_run(model, {"accumulate": 2}, checkpoints=Checkpoints(tmp_path))
    stepper = _stepper(run)
    stepper.step([FIRST, SECOND], Meter("cpu"))
    stepper.state.advance(2)
    good = weights_of(model)
    object.__setattr__(stepper._objective, "losses", losses)
    with pytest.raises(
        NonFiniteError, match=f"toy: the {what} is not finite at step 2: lower lr.*, with which the run starts over$"
    ) as caught:
        stepper.step([SECOND, FIRST], Meter("cpu"))
    assert caught.value.ids == [*SECOND.ids, *FIRST.ids]
    assert caught.value.step == 2
    assert same(weights_of(model), good)

    resumed = _stepper(toy_run(toy_model(seed=5), checkpoints=Checkpoints(tmp_path)))
    resumed.state.resume()
    assert (resumed.state.step, resumed.state.cursor) == (1, 2)


def test_validation_keeps_the_weights_when_they_are_the_best(tmp_path: Path) -> None:
    model, values, seen = toy_model(), iter([0.5, 0.9, 0.7]), []

    def validate(_objective: object, step: int) -> dict[str, float]:
        seen.append(weights_of(model))
        return {"score": next(values), "other": -float(step)}

    checkpoints = Checkpoints(tmp_path)
    run = toy_run(model, checkpoints=checkpoints, validate=validate, select=("score", True))
    stepper = _stepper(run)
    for _ in range(3):
        stepper.step([FIRST], Meter("cpu"))
        stepper.state.advance(0)
        stepper.validate()
    best = checkpoints.best()
    assert best is not None
    assert all(torch.equal(best[name], seen[1][name]) for name in trained(model))
    assert stepper.state.best == 0.9


def test_a_gradient_scaler_that_skips_every_step_stops_the_run() -> None:
    stepper = _stepper(toy_run(toy_model(), losses=_infinite_gradient))
    stepper._scaler = torch.amp.GradScaler("cpu")
    with pytest.raises(NonFiniteError, match="toy: the gradient is not finite at step"):
        any(stepper.step([FIRST], Meter("cpu")) is None for _ in range(100))


NOTHING = torch.zeros(0, dtype=torch.int64)


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(metering, "time", clock)
    return clock


def test_rates_are_over_all_ranks_and_since_the_last_look(clock: Clock) -> None:
    meter = Meter("cpu", ranks=3)
    meter.count(4, 50)
    meter.count(4, 30)
    with meter.waiting():
        clock.now += 0.5
    clock.now += 1.5
    pace = meter.pace()
    assert pace.samples_per_second == pytest.approx(3 * 8 / 2)
    assert pace.tokens_per_second == pytest.approx(3 * 80 / 2)
    assert pace.data_wait_share == pytest.approx(0.25)
    assert pace.peak_memory_mb > 10
    assert pace.flop_utilisation is None
    clock.now += 1
    assert (meter.pace().samples_per_second, meter.pace().data_wait_share) == (0, 0)


@dataclass
class SlowSource(ToySource):
    """A source whose every batch takes three seconds and loses two samples."""

    clock: Clock = field(default_factory=Clock)

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        for batch in super().epoch(epoch, cursor):
            self.clock.now += 3
            yield replace(batch, lost=2)


def test_the_loop_measures_its_waiting_for_data_and_counts_lost_samples(clock: Clock) -> None:
    seen: list[Step] = []

    def losses(features: Any) -> dict[str, Tensor]:
        clock.now += 1
        return {"any": features["caption"].own.sum() + features.scale}

    source = SlowSource(clock=clock)
    fit(toy_run(toy_model(), {}, {"log_every": 5}, source=source, losses=losses, report=seen.append))
    tokens = [sum(int(rows.sum()) for batch in source.epoch(n) for rows in batch.lengths.values()) for n in (0, 1)]
    assert [step.pace.data_wait_share for step in seen] == pytest.approx([0.75, 0.75])
    assert [step.pace.samples_per_second for step in seen] == pytest.approx([1.0, 1.0])
    assert [step.pace.tokens_per_second for step in seen] == pytest.approx([count / 20 for count in tokens])
    assert [(step.number, step.lost) for step in seen] == [(5, 10), (10, 20)]


class Perceptron(nn.Module):
    """An image tower of two layers, whose operations can be counted by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3 * 4 * 4, 10, bias=False), nn.Linear(10, 6, bias=False)

    def encode_image(self, pixels: Tensor) -> Tensor:
        hidden: Tensor = self.first(pixels.flatten(1))
        features: Tensor = self.second(hidden)
        return features


PIXELS = MicroBatch(None, NOTHING, torch.zeros(5, 3, 4, 4, dtype=torch.uint8), torch.arange(5), np.zeros(0, np.int64))
# The first layer has no gradient to hand on to the pixels.
FORWARD_AND_BACKWARD = 2 * 5 * (2 * 48 * 10 + 3 * 10 * 6)


def test_utilisation_is_a_share_of_the_peak(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "peak_flops", lambda _device: 1e6)
    model, meter = Perceptron(), Meter("cpu", ranks=4)
    kept = model.first.weight.grad = torch.ones_like(model.first.weight)
    assert meter.wants_flops()
    assert meter.pace().flop_utilisation is None
    meter.note_flops(Towers(model, "cpu"), [PIXELS, PIXELS], 10)
    assert not meter.wants_flops()
    assert model.first.weight.grad is kept
    assert model.second.weight.grad is None
    meter.count(20, 0)
    clock.now += 2
    assert meter.pace().flop_utilisation == pytest.approx(20 / 2 * FORWARD_AND_BACKWARD / 5 / 1e6)
