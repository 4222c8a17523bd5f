"""Two ranks of a machine share one copy of what one of them makes."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from scipy.sparse import csr_array

from components.core.compute.distributed import World
from components.core.compute.sharing import once_per_machine
from components.core.system.errors import InputError
from components.core.tables.arrays import mapped_array
from components.core.tables.text_column import TextColumn

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
    shared = once_per_machine(World(rank, 2, rank), lambda: _make(folder, fails), folder)
    numbers, tensor, sparse, column, tokens = shared
    assert all((values == np.arange(ROWS)).all() for values in (numbers, tensor.numpy(), sparse.toarray()[0], tokens))
    assert column[77] == "row 77"
    assert isinstance(tokens.base, mmap.mmap), "it stays in its file"
    lines = Path("/proc/self/smaps").read_text().splitlines()
    (start,) = (number for number, line in enumerate(lines) if ".shared-" in line)
    sizes = dict(line.split()[:2] for line in lines[start + 1 : start + 20])
    assert int(sizes["Size:"]) * 1024 > 4 * ROWS * 8, "arrays, sparse ones and texts are in the file"
    assert sizes["Anonymous:"] == "0", "no page is this rank's own"


@pytest.mark.parametrize(("fails", "codes"), [(False, [0, 0]), (True, [1, 1])])
def test_one_rank_makes_what_both_map(fails: bool, codes: list[int], tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_rank, args=(rank, tmp_path, fails)) for rank in range(2)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    assert [process.exitcode for process in ranks] == codes
    assert len(list(tmp_path.glob("made-by-*"))) == 1
    assert list(tmp_path.glob(".shared-*")) == []
