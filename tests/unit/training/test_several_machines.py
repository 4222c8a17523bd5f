"""Two machines under torchrun train as one of two ranks does; the ranks of a machine share one copy of its tables."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from scipy.sparse import csr_array

from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.core.tables.arrays import TextColumn, mapped_array
from components.core.tables.records import NEGATED_TERMS
from components.training.sharing import once_per_machine
from tests.support.params import REPO, every_method
from tests.support.ports import free_ports
from tests.support.stage_project import make_trainable, write_params

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


@pytest.mark.slow
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


@pytest.mark.slow
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


ROWS = 100_000


def _make(folder: Path, fails: bool) -> list[Any]:
    (folder / f"made-by-{os.getpid()}").touch()
    if fails:
        raise InputError("no such table")
    numbers, file = np.arange(ROWS), folder / "tokens.npy"
    np.save(file, numbers)
    column = TextColumn([f"row {row}" for row in range(ROWS)])
    return [numbers, torch.from_numpy(numbers), csr_array(numbers[None]), column, mapped_array(file, "")]


def _rank(rank: int, folder: Path, fails: bool) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    try:
        _share(rank, folder, fails)
    finally:
        # As in a training run. Gloo's threads abort a process that ends with a group while the other rank goes.
        dist.destroy_process_group()


def _share(rank: int, folder: Path, fails: bool) -> None:
    shared = once_per_machine(World(rank, 2, rank), lambda: _make(folder, fails), folder)
    numbers, tensor, sparse, column, tokens = shared
    assert all((values == np.arange(ROWS)).all() for values in (numbers, tensor.numpy(), sparse.toarray()[0], tokens))
    assert column[77] == "row 77"
    assert isinstance(tokens.base, mmap.mmap), "it stays in its file"
    (shared_file,) = (place for place in psutil.Process().memory_maps() if str(folder / ".shared-") in place.path)
    assert shared_file.size > 4 * ROWS * 8, "arrays, sparse ones and texts are in the file"
    assert shared_file.anonymous < ROWS * 8, "hardly a page is this rank's own"


@pytest.mark.parametrize(("fails", "code"), [(False, 0), (True, 1)])
def test_one_rank_makes_what_both_map(fails: bool, code: int, tmp_path: Path) -> None:
    call = f"import {__name__} as here, pathlib; here._rank({{}}, pathlib.Path({str(tmp_path)!r}), {fails})"
    # Processes that inherit neither threads nor mapped files from the tests before.
    ranks = [_start(REPO, "-c", call.format(rank)) for rank in range(2)]
    outputs = "\n".join(map(_ended, ranks))
    assert [process.returncode for process in ranks] == [code, code], outputs
    assert outputs.count("InputError: no such table") == fails, outputs
    assert len(list(tmp_path.glob("made-by-*"))) == 1
    assert list(tmp_path.glob(".shared-*")) == []
