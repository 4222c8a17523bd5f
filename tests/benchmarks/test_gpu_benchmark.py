"""The GPU benchmark runs where there is no GPU, at a tiny size: it must work at the first try where there is one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import gpu

REPO = Path(__file__).parents[2]

NOT_THERE = (
    "dvc", "mlflow", "more_itertools", "pandas", "prefect", "psutil", "pyarrow", 
    "pydantic_settings", "rich", "sqlalchemy", "tenacity", "typer", "wandb", "webdataset",
)  # fmt: skip
"""Packages that torch, open_clip and pydantic do not bring; `None` among the modules makes an import fail."""
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
    both = {"embed", "texts", "search", "evaluation", "one_query"}
    assert found["parts"].keys() == {"open_clip_train", "cliptune", *both, *(f"{name}_cpu" for name in both)}
    assert set(found["ratio_to_cpu"]) == both
    assert min(found["ratio_to_cpu"].values()) > 0
    assert re.search(r"^search +[\d,]+ +[\d,]+ +[\d.]+$", done.stdout, re.M)
    assert (found["device"], found["precision"], found["batch"]) == ("cpu", "bf16", 8)
    assert found["first_step_loss_difference"] < 0.05
    last = [found["parts"][side]["last_step_loss"] for side in ("cliptune", "open_clip_train")]
    first = found["parts"]["cliptune"]["first_step_loss"]
    assert abs(last[0] - last[1]) < 0.1 < first - last[0]
    assert min(found["speedup_vs_open_clip_train"], found["embed_images_per_second"]) > 0
    assert found["speedup_of_compiling"] is None


def test_compiled_parts_train_alike(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Everything but the generation of machine code, which takes minutes on a processor.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    gpu.main(["--tiny", "--precision", "fp32"])
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["failed"] == {}
    losses = [part["last_step_loss"] for part in found["parts"].values() if "last_step_loss" in part]
    assert len(losses) == 4
    assert max(losses) - min(losses) < 1e-3


def test_without_a_gpu_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="1"):
        gpu.main([])
    output = capsys.readouterr()
    assert output.err.startswith("error: no GPU is visible: run this where")
    assert (output.out, output.err.count("\n")) == ("", 1)
