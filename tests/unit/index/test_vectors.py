"""Vectors in several files are numbered through; a file that is not what `index.json` says is refused."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.errors import InputError
from components.index.vectors import Vectors, growing_array, open_segment
from tests.support.index_making import drawn


def test_rows_and_blocks_cross_segments() -> None:
    whole = drawn(10)
    vectors = Vectors([whole[:3], whole[3:4], whole[4:]], 8)
    assert len(vectors) == 10
    rows = np.array([9, 0, 3, 3, 2])
    assert np.array_equal(vectors.take(rows), whole[rows])
    assert [(start, len(block)) for start, block in vectors.blocks(4)] == [(0, 3), (3, 1), (4, 4), (8, 2)]
    assert np.array_equal(np.concatenate([block for _, block in vectors.blocks(2, first=5)]), whole[5:])
    assert [start for start, _ in vectors.blocks(4, first=2)] == [2, 3, 4, 8]


@pytest.mark.parametrize("blocks", [[], [3], [1, 0, 4]])
def test_a_growing_array_is_a_plain_one(blocks: list[int], tmp_path: Path) -> None:
    whole = drawn(sum(blocks))
    with growing_array(tmp_path / "a.npy", 8) as append:
        start = 0
        for rows in blocks:
            append(whole[start : start + rows])
            start += rows
    assert np.array_equal(np.load(tmp_path / "a.npy", allow_pickle=False), whole)


def test_a_growing_array_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError), growing_array(tmp_path / "a.npy", 8) as append:
        append(None)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (drawn(4)[:3], "holds float32 of shape (3, 8), index.json says float32 of shape (4, 8)"),
        (drawn(4).astype(np.float64), "holds float64 of shape (4, 8)"),
        (drawn(4).copy("F"), "of shape (4, 8) column by column"),
        (np.array([{}] * 4), "is damaged"),
    ],
)
def test_another_array_is_refused(content: Any, told: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", content, allow_pickle=True)
    with pytest.raises(InputError, match=r"a\.npy.*build the index again") as raised:
        open_segment(tmp_path / "a.npy", 4, 8)
    assert told in str(raised.value)


def test_pickles_cut_files_links_and_missing_ones_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(pickle.dumps(print))
    with pytest.raises(InputError, match="is damaged"):
        open_segment(path, 4, 8)
    np.save(path, drawn(4))
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(InputError, match="is damaged"):
        open_segment(path, 4, 8)
    path.unlink()
    with pytest.raises(InputError, match="No such file"):
        open_segment(path, 4, 8)
    np.save(tmp_path / "elsewhere.npy", drawn(4))
    path.symlink_to(tmp_path / "elsewhere.npy")
    with pytest.raises(InputError, match="is a link"):
        open_segment(path, 4, 8)
