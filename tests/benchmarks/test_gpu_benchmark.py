"""The GPU benchmark runs where there is no GPU, at a tiny size: it must work at the first try where there is one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import gpu, gpu_sides
from benchmarks.gpu_sides import Setup
from components.methods.contract.method import Optimisation

REPO = Path(__file__).parents[2]

NOT_THERE = (
    "annotated_types", "dvc", "mlflow", "more_itertools", "pandas", "prefect", "psutil", "pyarrow", "pydantic",
    "pydantic_settings", "rich", "sqlalchemy", "tenacity", "typer", "wandb", "webdataset",
)  # fmt: skip
"""What a machine with torch and open_clip alone does not have; `None` among the modules makes an import fail."""
BARE = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({NOT_THERE}))
runpy.run_module("benchmarks.gpu", run_name="__main__")
"""


def test_torch_and_open_clip_are_enough_and_both_sides_train_alike() -> None:
    command = [sys.executable, "-c", BARE, "--tiny", "--no-compile"]
    done = subprocess.run(command, check=False, cwd=REPO, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == {}
    assert found["parts"].keys() == {"open_clip_train", "cliptune", "embed"}
    assert (found["device"], found["precision"], found["batch"]) == ("cpu", "bf16", 8)
    assert found["first_step_loss_difference"] < 0.05
    last = [found["parts"][side]["last_step_loss"] for side in ("cliptune", "open_clip_train")]
    first = found["parts"]["cliptune"]["first_step_loss"]
    assert abs(last[0] - last[1]) < 0.1 < first - last[0]
    assert found["speedup_vs_open_clip_train"] > 0
    assert found["embed_images_per_second"] > 0
    assert found["speedup_of_compiling"] is None


def test_compiled_parts_train_alike(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Everything but the generation of machine code, which takes minutes on a processor.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    gpu.main(["--tiny", "--precision", "fp32"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["failed"] == {}
    losses = [part["last_step_loss"] for name, part in found["parts"].items() if "embed" not in name]
    assert len(losses) == 4
    assert max(losses) - min(losses) < 1e-3


def test_without_a_gpu_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="1"):
        gpu.main([])
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("error: no GPU is visible: run this where")
    assert told.err.count("\n") == 1


def test_a_part_that_fails_or_takes_too_long_does_not_keep_the_others_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> gpu_sides.Figures:
        raise RuntimeError("out of memory")

    def slow() -> gpu_sides.Figures:
        time.sleep(30)
        raise AssertionError

    known = {
        "open_clip_train": (5.0, lambda: {"samples_per_second": 2.0, "first_step_loss": 3.0}),
        "cliptune": (5.0, lambda: {"samples_per_second": 8.0, "first_step_loss": 3.5, "flop_utilisation": 0.5}),
        "embed": (5.0, broken),
        "cliptune_compiled": (0.2, slow),
        "embed_compiled": (0.0, slow),
    }
    monkeypatch.setattr(gpu, "parts", lambda _setup, _compile: known)
    found = gpu.measure(_tiny(), True)
    assert found["speedup_vs_open_clip_train"] == 4
    assert found["first_step_loss_difference"] == 0.5
    assert found["share_of_peak_flops"] == 0.5
    assert found["failed"] == {
        "embed": "RuntimeError: out of memory",
        "cliptune_compiled": "TimeoutError: more than 0 s",
        "embed_compiled": "TimeoutError: no time is left",
    }
    assert (found["embed_images_per_second"], found["speedup_of_compiling"]) == (None, None)


def _tiny() -> Setup:
    return Setup.of("tiny", gpu.TINY, "cpu", "bf16", 64)


def test_texts_have_the_lengths_that_are_told() -> None:
    setup = _tiny()
    assert (setup.tokens.argmax(axis=1) + 1).tolist() == setup.lengths.tolist()
    assert setup.tokens[:, 0].tolist() == [49406] * 64
    assert all(
        not row[length:].any() and row[:length].all() for row, length in zip(setup.tokens, setup.lengths, strict=True)
    )
    assert setup.facts()["tokens_longest"] == setup.lengths.max() <= 32


def test_the_engine_is_given_all_that_it_may_ask_for() -> None:
    assert set(vars(gpu_sides.optimisation(8))) == {field.name for field in fields(Optimisation)}
