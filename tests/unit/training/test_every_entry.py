"""What every entry of params.yaml is promised by the loop, on a small encoder and random rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from components.core.compute.checkpoint import Checkpoints
from components.core.compute.distributed import World
from components.encoders.adapter.encoder import Encoder
from components.methods.contract.losses import Features
from components.methods.contract.optimisation import Optimisation
from components.training.engine.gradients import Objective, Towers, backward
from components.training.engine.loop import fit
from components.training.engine.meter import Step
from components.training.engine.run import LoopOptions, Run
from tests.support.synthetic_training import Subject, SyntheticSource, batch, entries, find, subject

TOLERANCE = 1e-5


@pytest.fixture(params=entries())
def found(request: pytest.FixtureRequest, tiny_encoder: Encoder, language_model: Path) -> Subject:
    return subject(request.param, tiny_encoder, language_model)


def objective(found: Subject, micro_batch: int | None) -> Objective:
    def losses(features: Features) -> dict[str, Tensor]:
        return found.method.losses(features, found.hyper)

    model = found.encoder.model.eval()
    return Objective(Towers(model, "cpu"), model, found.extra, losses, micro_batch, World(), "cpu", found.perturb)


def gradients(found: Subject, micro_batch: int | None, rows: int = 12) -> tuple[dict[str, float], dict[str, Tensor]]:
    for parameter in found.trained.values():
        parameter.grad = None
    torch.manual_seed(2)
    outcome = backward(objective(found, micro_batch), batch(found, range(rows)), lambda loss: loss)
    grads = {name: parameter.grad.clone() for name, parameter in found.trained.items() if parameter.grad is not None}
    return {name: float(loss) for name, loss in outcome.losses.items()}, grads


@pytest.mark.parametrize("micro_batch", [1, 5, 7])
def test_micro_batches_give_the_whole_batch_gradient(found: Subject, micro_batch: int) -> None:
    whole_losses, whole = gradients(found, None)
    losses, pieces = gradients(found, micro_batch)
    assert losses == pytest.approx(whole_losses, rel=TOLERANCE, abs=1e-6)
    assert pieces.keys() == whole.keys()
    scale = torch.cat([gradient.flatten() for gradient in whole.values()]).norm()
    for name, gradient in whole.items():
        assert (pieces[name] - gradient).norm() <= TOLERANCE * scale, name


def test_every_trained_parameter_gets_a_finite_gradient(found: Subject) -> None:
    _, grads = gradients(found, None)
    scale_unused = not any(name == "logit_scale" for name in grads)
    missing = set(found.trained) - set(grads) - ({"logit_scale"} if scale_unused else set())
    assert not missing
    assert all(bool(torch.isfinite(gradient).all()) for gradient in grads.values())


def run(found: Subject, folder: Path | None, *, epochs: int = 2, **changes: object) -> Run:
    plan = Optimisation(lr=1e-3, batch_size=8, epochs=epochs, weight_decay=0.01)
    options: dict[str, object] = {"source": SyntheticSource(found, 24, 8), "optimisation": plan} | changes
    return Run(
        title=found.name,
        model=found.encoder.model,
        trained=found.trained,
        losses=lambda features: found.method.losses(features, found.hyper),
        extra=found.extra,
        perturb=found.perturb,
        checkpoints=Checkpoints(folder) if folder is not None else None,
        options=LoopOptions(checkpoint_every=2, log_every=1),
        **options,  # type: ignore[arg-type]
    )


def test_frozen_parameters_stay_and_trained_ones_move(found: Subject) -> None:
    kept = {name: parameter.detach().clone() for name, parameter in found.frozen.items()}
    before = {name: parameter.detach().clone() for name, parameter in found.trained.items()}
    fit(run(found, None))
    assert all(torch.equal(found.frozen[name], weights) for name, weights in kept.items())
    _, grads = gradients(found, None)
    still = [name for name in grads if torch.equal(found.trained[name], before[name])]
    # A row of the word table that no text uses stays, so whole tables are looked at, not rows.
    assert not still


def test_a_stopped_run_ends_like_an_undisturbed_one(
    found: Subject, tiny_encoder: Encoder, language_model: Path, tmp_path: Path
) -> None:
    start = {name: weights.detach().clone() for name, weights in found.trained.items()}
    torch.manual_seed(3)
    fit(run(found, None))
    whole = {name: weights.detach().clone() for name, weights in found.trained.items()}
    _put(found, start)

    def die(step: Step) -> None:
        if step.number == 5:
            raise KeyboardInterrupt

    torch.manual_seed(3)
    with pytest.raises(KeyboardInterrupt):
        fit(run(found, tmp_path, report=die))
    _put(found, {name: torch.randn_like(weights) for name, weights in start.items()})
    fit(run(found, tmp_path))
    assert all(torch.equal(found.trained[name], weights) for name, weights in whole.items())


def test_eight_rows_can_be_learned_by_heart(found: Subject) -> None:
    steps: list[Step] = []
    plan = Optimisation(lr=3e-3, batch_size=8, epochs=60)
    fit(run(found, None, source=SyntheticSource(found, 8, 8), optimisation=plan, report=steps.append))
    first, last = (sum(step.losses.values()) for step in (steps[0], steps[-1]))
    assert last < first - 0.3 * abs(first), (first, last)


def test_an_encoder_with_its_extra_tensors_survives_saving(found: Subject, tmp_path: Path) -> None:
    encoder = found.encoder
    encoder.extra = {name: tensor.detach() for name, tensor in found.extra.state_dict().items()}
    encoder.save(tmp_path / "encoder")
    again = Encoder.load(tmp_path / "encoder")
    texts = ["red dog", "two small boat near tree"]
    assert (again.embed_texts(texts) == encoder.embed_texts(texts)).all()
    assert again.extra.keys() == encoder.extra.keys()
    assert all(torch.equal(again.extra[name], tensor) for name, tensor in encoder.extra.items())


@pytest.mark.parametrize("name", entries())
def test_settings_survive_a_round_trip(name: str) -> None:
    from dataclasses import asdict

    method, hyper = find(name)
    assert method.settings(asdict(hyper)) == hyper


@torch.no_grad()
def _put(found: Subject, weights: dict[str, Tensor]) -> None:
    for name, parameter in found.trained.items():
        parameter.copy_(weights[name])
