"""Every measurement prints its help, and at a tiny size both of its sides find the same; speed is not tested."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from research.measure import evaluation, evaluation_data, gpu, serving, speedrun, training
from research.measure.serving_client import Answer, Outcome
from research.measure.training_sides import TrainedSide
from tests.conftest import REPO
from tests.support.serving_registry import register_champion

NAMES = ("evaluation", "gpu", "serving", "speedrun", "training")
TINY = "ViT-S-32-alt"
NOT_THERE = (
    "dvc", "mlflow", "more_itertools", "pandas", "prefect", "psutil", "pyarrow",
    "pydantic_settings", "rich", "sqlalchemy", "tenacity", "typer", "wandb", "webdataset",
)  # fmt: skip
"""Packages that torch, open_clip and pydantic do not bring; `None` among the modules makes an import fail."""
BARE = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({NOT_THERE}))
runpy.run_module("research.measure.gpu", run_name="__main__")
"""


@pytest.mark.parametrize("name", NAMES)
def test_the_help_has_defaults(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, f"research.measure.{name}")
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module(f"research.measure.{name}", run_name="__main__")
    shown = capsys.readouterr().out
    assert f"python -m research.measure.{name}" in shown
    options = runpy.run_module(f"research.measure.{name}")["OPTIONS"]
    assert all(f"({default})" in shown for default, _ in options.values())


def test_speed_ups_are_medians_of_right_answers_without_first_steps() -> None:
    peer = TrainedSide([3.0, 2.0, 1.5], [9.0, 4.0, 6.0], [10.0, 18.0, 30.0])
    ours = TrainedSide([3.0, 2.25, 1.5], [5.0, 0.5, 0.5], [1.0, 2.0, 3.0])
    found = training.compare([(peer, ours)], batch=8, embedding=0.25)
    assert (found["samples_per_second_peer"], found["samples_per_second_ours"]) == (8 / 5, 16)
    assert found["speedup"] == found["speedup_in_processor_time"] == 10
    assert found["largest_loss_difference"] == 0.25
    # An epoch is a step of 5 s against one of 0.5 s; embedding its 8 images takes 2 s.
    assert found["break_even_epochs"] == pytest.approx(2 / 4.5)
    assert found["speedup_with_embedding_by_epochs"]["10"] == 50 / 7
    slow = TrainedSide(ours.losses, [9.0, 2.0, 2.0], ours.processor)
    assert training.compare([(peer, ours), (peer, slow), (peer, slow)], 8, 0.25)["speedup"] == 2.5
    body = json.dumps({"predictions": [[0.6, 0.8]]}).encode()
    answers = [Answer("a", 200, 4.0, body), Answer("a", 200, 6.0, body), Answer("a", 500, 1.0, b"")]
    mlflow, ours = Outcome(2.0, 1, answers), Outcome(0.5, 0, answers)
    found = serving.speed([ours], [mlflow])
    assert found == {"requests_per_second": 4, "times_mlflow": 4, "ms": 5, "not_answered": 1}
    assert serving.speed([mlflow], [mlflow])["not_answered"] == 2
    assert ours.largest_difference({"a": torch.tensor([0.6, 1.0]).numpy()}) == pytest.approx(0.2)


def test_a_speedrun_below_its_goal_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed(clone: Path, profile: str) -> tuple[float, str]:
        found = clone / "reports" / "metrics" / f"{profile}.json"
        found.parent.mkdir(parents=True, exist_ok=True)
        found.write_text(json.dumps({"metrics": {speedrun.METRIC: {"value": 0.4}}}))
        return 2.0, profile

    monkeypatch.setattr(speedrun, "timed", timed)
    monkeypatch.setattr(speedrun, "gflops", lambda: 100.4)
    monkeypatch.chdir(REPO)
    assert speedrun.measure("best", 40.0) == {"minutes": 2.0, "ao_at_10": 40.0, "gflops": 100}
    with pytest.raises(InputError, match=r"AO@10 is 40.0 after 2.00 minutes, below 40.1: this run does not count"):
        speedrun.measure("best", 40.1)


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="no GPU is visible: run this where"):
        gpu.make_setup("ViT-B-32", 0, "auto", tiny=False)


@pytest.mark.slow
@pytest.mark.integration
def test_both_sides_train_the_same_weights_on_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "bf16_is_native", lambda _device: True)
    found = training.measure(TINY, 4, 1, 1, "cpu")
    assert found == json.loads(json.dumps(found))
    plain, mixed = (found["precisions"][name] for name in ("fp32", "bf16"))
    # The second loss is equal only if gradients, learning rate and optimiser are.
    assert plain["largest_loss_difference"] <= 1e-4
    assert abs(plain["losses_ours"][0] - plain["losses_ours"][1]) > 0.01
    # Rounded to three digits, the losses stay those of the same training.
    assert mixed["largest_loss_difference"] <= 0.05
    for side in ("losses_ours", "losses_peer"):
        assert plain[side] != mixed[side]
    assert min(found["speedup_bf16_vs_fp32"], plain["speedup"], mixed["speedup"]) > 0
    assert len(list(training.rows(found))) == 3


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(900)
def test_both_evaluations_find_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation_data, "TEMPLATES", evaluation_data.TEMPLATES[:1])
    found = evaluation.measure(TINY, 12)
    assert (found["images"], found["texts"]) == (24, 12 * 5 + 100)
    assert found["largest_difference"] < 1e-6
    assert min(found["seconds_clip_benchmark"], found["seconds_cliptune"]) > 0


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.timeout(1200)
def test_servers_answer_equal_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_encoder: Encoder) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    register_champion(tiny_encoder)
    found = serving.measure(clients=4, seconds=1.0, rounds=1, texts=50)
    assert found == json.loads(json.dumps(found))
    assert max(found["largest_difference"].values()) < 1e-5
    for side in found["sides"].values():
        assert side["requests_per_second"] > 0 == side["not_answered"]
    fp32, bf16, int8 = found["rounding"].values()
    assert fp32["cosine_least"] > 0.999999 > bf16["cosine_mean"] > int8["cosine_mean"] > 0.99
    assert len({len(row) for row in serving.rows(found)}) == 1


@pytest.mark.slow
def test_torch_and_open_clip_are_enough_on_a_gpu_and_both_sides_train_alike() -> None:
    command = [sys.executable, "-c", BARE, "--tiny", "--no-compile"]
    done = subprocess.run(command, check=False, cwd=REPO, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["failed"], found["batch"], len(found["commit"])) == ({}, 8, 40)
    assert found["parts"].keys() == {gpu.PEER, gpu.OURS, *gpu.INFERENCE, *(f"{name}_cpu" for name in gpu.INFERENCE)}
    assert min(found["speedup_vs_open_clip_train"], *found["ratio_to_cpu"].values()) > 0
    assert found["first_step_loss_difference"] < 0.05
    ours, peer = (found["parts"][side] for side in (gpu.OURS, gpu.PEER))
    assert abs(ours["last_step_loss"] - peer["last_step_loss"]) < 0.1 < ours["first_step_loss"] - ours["last_step_loss"]


@pytest.mark.slow
def test_compiled_parts_train_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    # Everything but the generation of machine code, which takes minutes on a processor.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    found = gpu.measure("", 0, "fp32", no_compile=False, tiny=True)
    assert found["failed"] == {}
    losses = [part["last_step_loss"] for part in found["parts"].values() if "last_step_loss" in part]
    assert len(losses) == 4
    assert max(losses) - min(losses) < 1e-3
