"""Two ranks of a machine share one copy of what one of them makes."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist
from scipy.sparse import csr_array

from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.core.tables.arrays import TextColumn, mapped_array
from components.training.sharing import once_per_machine
from tests.support.params import REPO

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


def _started(rank: int, folder: Path, fails: bool) -> subprocess.Popen[str]:
    """A process that inherits neither threads nor mapped files from the tests before."""
    call = f"import {__name__} as here, pathlib; here._rank({rank}, pathlib.Path({str(folder)!r}), {fails})"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-c", call], cwd=REPO, env=environment, **streams)


@pytest.mark.parametrize(("fails", "code"), [(False, 0), (True, 1)])
def test_one_rank_makes_what_both_map(fails: bool, code: int, tmp_path: Path) -> None:
    ranks = [_started(rank, tmp_path, fails) for rank in range(2)]
    outputs = "\n".join(process.communicate(timeout=300)[0] for process in ranks)
    assert [process.returncode for process in ranks] == [code, code], outputs
    assert outputs.count("InputError: no such table") == fails, outputs
    assert len(list(tmp_path.glob("made-by-*"))) == 1
    assert list(tmp_path.glob(".shared-*")) == []
