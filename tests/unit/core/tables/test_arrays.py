"""Arrays on disk leave nothing in memory, and a column of texts says what a list of them would."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.tables import arrays
from components.core.tables.arrays import TextColumn, mapped_array, rows_of, written_array

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


TEXTS = ["ape", "", "bee", "ape", "caf\u00e9"]


def test_it_is_the_sequence_that_it_was_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_BLOCK", 2)
    series, chunks = pd.Series(TEXTS, index=range(5, 10)), pa.chunked_array([TEXTS[:2], TEXTS[2:]])
    for given_texts in (TEXTS, series, pa.array(TEXTS), chunks):
        column = TextColumn(given_texts)
        assert list(column) == [column[place] for place in range(len(column))] == TEXTS, type(given_texts)
        assert list(column[1:3]) == TEXTS[1:3]
        assert list(TextColumn(column)) == TEXTS


@given(st.lists(st.text(max_size=2)), st.lists(st.text(max_size=2)))
def test_places_are_the_first(texts: list[str], wanted: list[str]) -> None:
    expected = [texts.index(text) if text in texts else -1 for text in wanted]
    assert TextColumn(texts).places(wanted).tolist() == expected


def test_it_takes_hardly_more_memory_than_its_letters() -> None:
    texts = [f"text number {number}" for number in range(10_000)]
    assert TextColumn(texts).arrow.nbytes < sum(map(len, texts)) + 9 * len(texts)
