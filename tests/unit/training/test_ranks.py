"""Two gloo ranks under torchrun compute what one process computes with the global batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from components.core.compute.distributed import World
from tests.support.rank_worker import LOGGED, one_step
from tests.support.synthetic_training import entries

TOLERANCE = 1e-5


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
