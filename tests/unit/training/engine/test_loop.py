"""The loop: interrupted runs end as if they had not been, and every rank does the same things at the same steps."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.training.engine.loop import fit
from components.training.engine.meter import Step
from components.training.engine.run import Run, State
from components.training.methods.contract.losses import Features
from tests.support.toy_training import ToySource, same, toy_losses, toy_model, toy_run, trained, weights_of


class Killed(BaseException):
    pass


def _noisy(features: Features) -> dict[str, Tensor]:
    """Losses that depend on the state of the random numbers, too."""
    return {name: loss * (1 + torch.rand(())) for name, loss in toy_losses(features).items()}


def _dying(at: int) -> Any:
    """Losses that kill the process when they are computed for the `at`-th time."""
    calls = iter(range(1, at))

    def losses(features: Features) -> dict[str, Tensor]:
        if next(calls, None) is None:
            raise Killed
        return _noisy(features)

    return losses


PLANS: list[tuple[dict[str, Any], dict[str, Any], ToySource]] = [
    ({}, {}, ToySource()),
    ({"accumulate": 2, "epochs": 4}, {"micro_batch": 3}, ToySource(21, 4)),
    ({"schedule": "exponential", "clip_gradient": 0.1}, {"checkpoint_every": 1}, ToySource(20, 4)),
]


@pytest.mark.parametrize(("plan", "options", "source"), PLANS)
@pytest.mark.parametrize("die_at", [1, 4, 6, 10])
def test_an_interrupted_run_ends_with_the_same_weights(
    plan: dict[str, Any], options: dict[str, Any], source: ToySource, die_at: int, tmp_path: Path
) -> None:
    whole = toy_model()
    fit(toy_run(whole, plan, options, source=source, losses=_noisy))
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(Killed):
        fit(toy_run(toy_model(), plan, options, source=source, checkpoints=checkpoints, losses=_dying(die_at)))
    resumed = toy_model(seed=7 if list(tmp_path.iterdir()) else 0)
    frozen = {name: weights for name, weights in whole.state_dict().items() if name not in trained(whole)}
    resumed.load_state_dict({**resumed.state_dict(), **frozen})
    fit(toy_run(resumed, plan, options, source=source, checkpoints=checkpoints, losses=_noisy))
    assert same(weights_of(resumed), weights_of(whole))


@given(epochs=st.integers(1, 3), count=st.integers(8, 30), accumulate=st.integers(1, 2), every=st.integers(1, 5))
@settings(max_examples=15)
def test_steps_reports_and_rates_are_those_of_the_plan(epochs: int, count: int, accumulate: int, every: int) -> None:
    seen: list[Step] = []
    plan = {"epochs": epochs, "accumulate": accumulate, "warmup_steps": 0, "schedule": "exponential", "gamma": 0.5}
    total = fit(toy_run(toy_model(), plan, {"log_every": every}, source=ToySource(count, 4), report=seen.append)).step
    per_epoch = count // 4 // accumulate
    assert total == per_epoch * epochs
    assert [step.number for step in seen] == [n for n in range(1, total + 1) if n % every == 0 or n == total]
    assert [step.lr for step in seen] == pytest.approx([0.01 * 0.5 ** ((s.number - 1) // per_epoch) for s in seen])


def test_reports_have_losses_and_validation_comes_every_few_steps(tmp_path: Path) -> None:
    seen: list[Step] = []
    model = toy_model()
    fit(toy_run(model, report=seen.append))
    assert list(seen[-1].losses) == ["l1", "l2"]
    assert seen[-1].logit_scale == pytest.approx(float(model.logit_scale.detach().exp()))
    assert sum(seen[0].losses.values()) != sum(seen[-1].losses.values())
    steps: list[int] = []
    for every in (4, None):
        options = {"validate_every": every, "checkpoint_every": 5}
        folder = Checkpoints(tmp_path / str(every), keep=9)
        fit(toy_run(toy_model(), {}, options, checkpoints=folder, validate=lambda _, step: steps.append(step) or {}))
        assert [path.name for path in folder.folder.iterdir()] == ["step-00000005"]
    assert steps == [4, 8, 10]


@dataclass(frozen=True)
class Marching(World):
    """A single rank, which notes where it would have waited for the others."""

    waits: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)

    def wait(self) -> None:
        self.waits.append(len(self.steps))

    def average(self, tensors: Any) -> None:
        self.steps.append(len(list(tensors)))


def test_ranks_wait_for_each_other_at_the_same_steps(tmp_path: Path) -> None:
    """Only the leading rank validates and writes; the others must still be there when it does."""

    def march(rank: int) -> Marching:
        world = Marching(rank)
        leads: dict[str, Any] = {"validate": lambda _, step: {"score": 1.0}} if world.leads else {}

        def losses(features: Features) -> dict[str, Tensor]:
            return {"any": features["caption"].all.sum() + features.scale}

        options = {"validate_every": 2, "checkpoint_every": 3, "world": world}
        folder = Checkpoints(tmp_path / str(rank))
        fit(toy_run(toy_model(), {}, options, losses=losses, checkpoints=folder, select=("score", True), **leads))
        return world

    first, second = march(0), march(1)
    assert first.waits == second.waits
    assert len(first.waits) == 5 + 3
    assert not (tmp_path / "1").exists()


def test_a_plan_that_cannot_be_is_refused() -> None:
    for plan, source, message in [
        ({}, ToySource(3, 4), "toy has too few rows"),
        ({"accumulate": 6}, ToySource(), "toy: accumulate 6 is more than an epoch's batches: lower it"),
    ]:
        run: Run = toy_run(toy_model(), plan, source=source)
        before = weights_of(run.model)
        with pytest.raises(InputError, match=message):
            fit(run)
        assert same(weights_of(run.model), before)


@pytest.mark.parametrize(("warmup", "used"), [(9, 9), (10, 1), (500, 1)])
def test_a_too_long_warmup_is_a_tenth_of_the_run(warmup: int, used: int, capsys: pytest.CaptureFixture[str]) -> None:
    runs: list[Run] = [toy_run(toy_model(), {"warmup_steps": steps}) for steps in (warmup, used)]
    assert [fit(run).step for run in runs] == [10, 10]
    assert same(weights_of(runs[0].model), weights_of(runs[1].model))
    assert (f"{warmup} warm-up steps do not fit into 10 steps: 1 are used" in capsys.readouterr().out) == (used == 1)


TABLE, SHARDS = {"kind": "table"}, {"kind": "shards", "ranks": "2"}


@dataclass(frozen=True)
class Ranks(World):
    """A rank whose neighbours' values are `apart` larger each; it does not wait for other ranks."""

    apart: int = 0

    def everyones(self, value: int) -> list[int]:
        return [value + rank * self.apart for rank in range(self.size)]

    def wait(self) -> None:
        pass


def _state(
    folder: Path | None, world: World | None = None, batch_size: int = 8, source: dict[str, str] = TABLE, seed: int = 0
) -> tuple[State, dict[str, nn.Parameter], torch.optim.AdamW]:
    torch.manual_seed(seed)
    weights = {"a": nn.Parameter(torch.randn(3, 2)), "b": nn.Parameter(torch.randn(2))}
    optimiser = torch.optim.AdamW(weights.values(), lr=0.1, fused=True)
    checkpoints = Checkpoints(folder) if folder is not None else None
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    state = State(checkpoints, weights, optimiser, scaler, world or World(), batch_size, source)
    return state, weights, optimiser


def test_without_checkpoints_nothing_is_saved_or_resumed() -> None:
    state, _, _ = _state(None)
    state.advance(1)
    state.save()
    state.keep_if_best(1.0, larger=True)
    state.resume()
    assert (state.step, state.best) == (1, 1.0)


def test_ranks_and_tables_go_on_from_their_own_cursor_or_are_refused(tmp_path: Path) -> None:
    _state(tmp_path / "batch")[0].save()
    with pytest.raises(InputError, match="step 0 has global batch 8, this run 16: keep the batch size"):
        _state(tmp_path / "batch", batch_size=16)[0].resume()
    _state(tmp_path / "share", source=SHARDS, world=Ranks(0, 2))[0].save()
    with pytest.raises(InputError, match=r"made by 2 ranks from another share .* use as many ranks"):
        _state(tmp_path / "share", source=SHARDS | {"ranks": "1"})[0].resume()
    with pytest.raises(InputError, match=r"different steps \(0 and 50\): make train.checkpoint_dir a folder that all"):
        _state(tmp_path / "batch", world=Ranks(0, 2, apart=50))[0].resume()
    state, _, _ = _state(tmp_path, source=SHARDS, world=Ranks(0, 2, apart=100))
    state.advance(7)
    state.save()
    cursors = []
    for rank in range(2):
        again, _, _ = _state(tmp_path, source=SHARDS, world=Ranks(rank, 2))
        again.resume()
        cursors.append(again.cursor)
    assert cursors == [7, 107]


@pytest.mark.parametrize("ranks", [1, 4])
def test_a_table_goes_on_with_another_number_of_ranks(ranks: int, tmp_path: Path) -> None:
    state, weights, _ = _state(tmp_path, world=Ranks(0, 2))
    state.advance(7)
    state.save()
    again, others, _ = _state(tmp_path, world=Ranks(ranks - 1, ranks), seed=3)
    again.resume()
    assert (again.step, again.cursor) == (1, 7)
    assert torch.equal(others["a"], weights["a"])


@pytest.mark.parametrize(("larger", "kept", "place"), [(True, 0.9, 2), (False, 0.1, 3)])
def test_the_first_of_the_best_weights_are_kept(larger: bool, kept: float, place: int, tmp_path: Path) -> None:
    state, weights, _ = _state(tmp_path)
    for number, value in enumerate((0.5, float("nan"), 0.9, 0.1, float("inf"), 0.9, 0.1)):
        with torch.no_grad():
            weights["b"].fill_(number)
        state.keep_if_best(value, larger=larger)
    assert state.best == kept
    best = Checkpoints(tmp_path).best()
    assert best is not None
    assert best.keys() == weights.keys()
    assert best["b"].tolist() == [place, place]
