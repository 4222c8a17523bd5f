"""The loop: interrupted runs end as if they had not been, and bad numbers stop it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from components.errors import InputError
from components.training.checkpoint import Checkpoints
from components.training.loop import MAX_LOGIT_SCALE, Run, Step, fit, make_optimiser
from components.training.optimisation import Optimisation
from components.training.sampler import Rows, Sampler

PLAN = Optimisation(lr=0.05, batch_size=4, epochs=4, weight_decay=0.1, warmup_steps=2)
DATA = torch.randn(20, 3, generator=torch.Generator().manual_seed(3))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 1)
        self.logit_scale = nn.Parameter(torch.tensor(4.6))


class Killed(Exception):
    pass


def _run(model: Model, checkpoints: Checkpoints | None, die_at: int | None = None, **changes: object) -> Run:
    steps = 0

    def losses(rows: Rows) -> dict[str, Tensor]:
        nonlocal steps
        steps += 1
        if steps == die_at:
            raise Killed
        return {"square": model.layer(DATA[rows]).square().mean(), "scale": -model.logit_scale}

    options = {"checkpoint_every": 3, "log_every": 2} | changes
    return Run(
        "toy",
        model,
        dict(model.named_parameters()),
        losses,
        Sampler(np.arange(20), 4, 7),
        PLAN,
        checkpoints,
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("die_at", [1, 4, 7, 11, 20])
def test_an_interrupted_run_ends_with_the_same_weights(die_at: int, tmp_path: Path) -> None:
    whole = Model()
    assert fit(_run(whole, None)) == 20
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(Killed):
        fit(_run(Model(), checkpoints, die_at))
    resumed = Model()
    fit(_run(resumed, checkpoints))
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, resumed.state_dict()[name]), name


def test_a_resumed_run_does_only_the_rest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    with pytest.raises(Killed):
        fit(_run(Model(), checkpoints, 11))
    seen: list[Step] = []
    fit(_run(Model(), checkpoints, report=seen.append))
    assert [step.number for step in seen] == [10, 12, 14, 16, 18, 20]


def test_logit_scale_is_clamped() -> None:
    model = Model()
    fit(_run(model, None))
    assert float(model.logit_scale.detach()) == pytest.approx(MAX_LOGIT_SCALE)


def test_loss_that_is_not_finite_stops_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    model, checkpoints = Model(), Checkpoints(tmp_path)
    run = _run(model, checkpoints)
    calls = 0

    def losses(rows: Rows) -> dict[str, Tensor]:
        nonlocal calls
        calls += 1
        return {"square": model.layer(DATA[rows]).mean() * (float("nan") if calls == 8 else 1.0)}

    with pytest.raises(InputError, match="toy: the loss is not finite at step 7"):
        fit(Run(**(run.__dict__ | {"losses": losses})))
    assert checkpoints.resume(Model(), make_optimiser(dict(Model().named_parameters()), PLAN)) == 6


def test_decay_spares_biases_and_the_logit_scale() -> None:
    decayed, spared = make_optimiser(dict(Model().named_parameters()), PLAN).param_groups
    assert [tuple(parameter.shape) for parameter in decayed["params"]] == [(1, 3)]
    assert decayed["weight_decay"] == 0.1
    assert len(spared["params"]) == 2
    assert spared["weight_decay"] == 0.0
