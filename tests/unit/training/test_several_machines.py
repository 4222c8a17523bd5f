"""Two machines under torchrun train as one machine of two ranks does; each machine reads its tables once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from components.core.tables.records import NEGATED_TERMS
from tests.support.params import REPO, every_method
from tests.support.ports import free_ports
from tests.support.stage_project import make_trainable, write_params

pytestmark = pytest.mark.slow
TRAIN = ("-m", "components.training.train", "--method", "tried")
LAUNCHER = ("-m", "components.core.compute.distributed")
ENTRY = {"method": "conclip", "train_data": "data/validated", "batch_size": 16, "epochs": 2, "lr": 0.001}
WEIGHTS = "models/tried/encoder.safetensors"
Project = Callable[[str], Path]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    make_trainable(folder)
    train = {"checkpoint_dir": "state/train", "validation_images": 12, "validate_every": 5, "checkpoint_every": 4}
    raw = every_method() | {"methods": {"tried": ENTRY | {"warmup_steps": 1}}, "compare_encoders": ["base"]}
    write_params(folder, raw | {"train": train | {"precision": "fp32", "processes": 2}})
    return folder


@pytest.fixture
def project(original: Path, tmp_path: Path) -> Project:
    """Copies the project to a folder of this name."""
    return lambda name: Path(shutil.copytree(original, tmp_path / name))


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    command, outputs = [sys.executable, *arguments], {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **outputs)  # type: ignore[call-overload]


def _two_machines(*folders: Path) -> list[subprocess.Popen[str]]:
    """Each with its own folder, as without a shared disk."""
    (port,) = free_ports(1)
    nodes = ("--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port))
    return [_start(folder, *LAUNCHER, *nodes, "--node-rank", str(n), *TRAIN) for n, folder in enumerate(folders)]


def _ended(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=300)[0]


def test_two_machines_give_the_weights_of_one_with_two_ranks(project: Project) -> None:
    one, first, second = project("one"), project("first"), project("second")
    before = {path for path in second.rglob("*") if "tokens" not in path.parts}
    printed = _ended(_start(one, *TRAIN))
    assert (one / WEIGHTS).is_file(), printed
    printed = "\n".join(map(_ended, _two_machines(first, second)))
    assert (first / WEIGHTS).is_file(), printed
    expected, found = (load_file(folder / WEIGHTS) for folder in (one, first))
    assert not [key for key in expected if not torch.equal(found[key], expected[key])]
    assert [path.name for path in (first / "state" / "train").iterdir()] == ["tokens"], "nothing else is left over"
    left = {path for path in second.rglob("*") if "tokens" not in path.parts}
    assert left - before == {second / "state" / "train"}, "only rank 0 writes"


@pytest.mark.parametrize(
    ("rows", "complaints"),
    [(7, ["the machines have different params.yaml, tables or base encoders"] * 2), (0, ["no pair is in all of"])],
    ids=["others", "none"],
)
def test_machines_with_different_tables_do_not_train(rows: int, complaints: list[str], project: Project) -> None:
    first, second = project("first"), project("second")
    table = second / "data" / "validated" / "negated_terms.parquet"
    NEGATED_TERMS.write(table, NEGATED_TERMS.read(table).slice(0, rows))
    printed = "\n".join(map(_ended, _two_machines(first, second)))
    errors = [line for line in printed.splitlines() if line.startswith("error: ")]
    assert len(errors) == len(complaints), printed
    assert all(complaint in error for complaint, error in zip(complaints, errors, strict=True))
    assert "Traceback" not in printed
    assert [path for folder in (first, second) for path in folder.rglob("*.shared-*")] == []
