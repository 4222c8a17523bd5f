"""The loop's guarantees for every entry of params.yaml, also under torchrun, on a small encoder and random rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from components.core.compute.distributed import World
from components.encoders.adapter.encoder import Encoder
from components.training.engine.gradients import Objective, Towers, backward
from components.training.engine.loop import fit
from components.training.engine.run import LoopOptions
from components.training.methods.contract.method import Optimisation
from tests.support.rank_worker import LOGGED, one_step
from tests.support.synthetic_training import Subject, SyntheticSource, batch, entries, subject

TOLERANCE = 1e-5


@pytest.fixture(params=entries())
def found(request: pytest.FixtureRequest, tiny_encoder: Encoder, language_model: Path) -> Subject:
    return subject(request.param, tiny_encoder, language_model)


def gradients(found: Subject, micro_batch: int | None) -> tuple[dict[str, float], dict[str, Tensor]]:
    for parameter in found.trained.values():
        parameter.grad = None
    torch.manual_seed(2)
    model, losses = found.encoder.model.eval(), found.method.objective
    facts = {"perturb": found.perturb, "teacher": found.teacher}
    objective = Objective(Towers(model, "cpu"), model, found.extra, losses, micro_batch, World(), "cpu", **facts)
    outcome = backward(objective, batch(found, range(12)), lambda loss: loss)
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


def test_frozen_parameters_stay_and_trained_ones_have_finite_gradients_and_move(found: Subject) -> None:
    kept = {name: parameter.detach().clone() for name, parameter in found.frozen.items()}
    before = {name: parameter.detach().clone() for name, parameter in found.trained.items()}
    _, grads = gradients(found, None)
    assert set(found.trained) - set(grads) <= {"logit_scale"}
    assert all(bool(torch.isfinite(gradient).all()) for gradient in grads.values())
    plan = Optimisation(lr=1e-3, batch_size=8, epochs=2, weight_decay=0.01)
    fit(found.run(source=SyntheticSource(found, 24, 8), optimisation=plan, options=LoopOptions(log_every=1)))
    assert all(torch.equal(found.frozen[name], weights) for name, weights in kept.items())
    # A row of the word table that no text uses stays, so whole tables are compared.
    assert not [name for name in grads if torch.equal(found.trained[name], before[name])]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory, language_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    worker = Path(__file__).parents[2] / "support" / "rank_worker.py"
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(worker)]
    done = subprocess.run(
        [sys.executable, *command, str(folder), str(language_model)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


CASES = [(name, kind) for name in entries() for kind in ("whole", "pieces")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [*CASES, *((name, "logged") for name in LOGGED)])
def test_two_ranks_equal_one(name: str, kind: str, two_ranks: Path, language_model: Path, tmp_path: Path) -> None:
    one_step(name, language_model, tmp_path, World(), None, kind == "logged")
    losses = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    assert json.loads((two_ranks / kind / f"{name}.json").read_text("utf-8")) == pytest.approx(
        losses, rel=TOLERANCE, abs=1e-6
    )
    alone, together = (load_file(folder / f"{name}.safetensors") for folder in (tmp_path, two_ranks / kind))
    assert together.keys() == alone.keys()
    scale = torch.cat([gradient.flatten() for gradient in alone.values()]).norm()
    for key, gradient in alone.items():
        assert (together[key] - gradient).norm() <= TOLERANCE * scale, key
