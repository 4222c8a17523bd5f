"""Arrays on disk: written in blocks they are NumPy's own files, and rows of them leave nothing in memory."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from components.core.tables.arrays import mapped_array, rows_of, written_array

ROWS = np.random.default_rng(0).normal(size=(60_000, 64)).astype(np.float32)


def test_a_file_in_blocks_has_the_bytes_of_a_whole_one(tmp_path: Path) -> None:
    rows = ROWS[:7]
    np.save(tmp_path / "whole.npy", rows)
    for block in (1, 4, 7):
        with written_array(tmp_path / "blocks.npy", np.float32, rows.shape) as add:
            for start in range(0, len(rows), block):
                add(rows[start : start + block])
        assert (tmp_path / "blocks.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="memory of a mapped file is read from /proc")
def test_rows_of_a_mapped_array_leave_no_pages_behind(tmp_path: Path) -> None:
    path, chosen = tmp_path / "rows.npy", np.arange(0, len(ROWS), 7)[::-1].copy()
    np.save(path, ROWS)
    mapped = mapped_array(path, "")
    assert np.asarray(mapped[chosen]).shape == (len(chosen), 64)
    assert _resident(path) > ROWS.nbytes / 2
    assert (rows_of(mapped, chosen) == ROWS[chosen]).all()
    assert _resident(path) == 0
    assert (rows_of(ROWS, chosen) == ROWS[chosen]).all()


def _resident(path: Path) -> int:
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    sizes = (next(line for line in lines if line.startswith("Rss:")) for head in lines if head.endswith(str(path)))
    return sum(int(size.split()[1]) * 1024 for size in sizes)
