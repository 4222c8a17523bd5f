"""The loop's guarantees for every entry of params.yaml, also under torchrun, on a small encoder and random rows."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from components.core.compute.distributed import World
from components.encoders.adapter.encoder import Encoder
from components.registry.formats import find_format
from components.training import train
from components.training.engine.gradients import Objective, Towers, backward
from components.training.engine.loop import fit
from components.training.engine.run import LoopOptions
from components.training.methods.contract.method import Optimisation
from tests.conftest import REPO
from tests.support.rank_worker import LOGGED, one_step
from tests.support.synthetic_training import Subject, SyntheticSource, batch, entries, subject
from tests.support.toy_world import World as SmallWorld
from tests.support.toy_world import world_settings

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


ENTRY = {"batch_size": 16, "epochs": 2, "lr": 0.0003, "weight_decay": 0.1}


@pytest.fixture
def exported(world: SmallWorld, tmp_path: Path) -> Path:
    folder = tmp_path / "exported"
    folder.mkdir()
    find_format("open_clip").write(Encoder.load(world.files.base), folder)
    return folder


def test_one_file_has_the_losses_and_weights_of_the_stage(
    world: SmallWorld, exported: Path, tmp_path: Path, track_in: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    track_in(tmp_path)
    losses: list[dict[str, float]] = []
    monkeypatch.setattr(train, "report_to", lambda _run: lambda step: losses.append(step.losses))
    # The file trains on all rows.
    settings = world_settings(tmp_path / "state", validation_images=0, log_every=1)
    settings = settings.model_copy(update={"methods": {"paraclip": ENTRY}})
    train.run(settings, "paraclip", replace(world.files, models=tmp_path))
    trained: dict[str, Any] = Encoder.load(tmp_path / "paraclip").model.state_dict()

    one_file, output = runpy.run_path(str(REPO / "docs/examples/paraclip_flat.py")), tmp_path / "flat.safetensors"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in ENTRY.items()]
    tables = world.files.train, world.files.validated / "paraphrases.parquet"
    options += [f"--pairs={tables[0]}", f"--paraphrases={tables[1]}"]
    history = one_file["main"]([f"local-dir:{exported}", str(output), *options])

    assert len(history) == 14
    for own, stages in zip(history, losses, strict=True):
        assert own == pytest.approx(stages, abs=1e-5)
    assert sum(history[-1].values()) < sum(history[0].values()) - 0.1
    flat = load_file(output)
    for name in flat:
        if name.endswith("attn.in_proj_bias"):
            # A bias of the keys adds the same number to all of a query's logits: its gradient is only rounding.
            flat[name].chunk(3)[1].zero_()
            trained[name].chunk(3)[1].zero_()
    torch.testing.assert_close(flat, trained, atol=1e-5, rtol=0)
