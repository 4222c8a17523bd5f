"""Arrays on disk leave nothing in memory; a column of texts is a list of them; work ahead keeps its order."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.tables import arrays
from components.core.tables.ahead import in_order, mapped, prefetched
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


def _threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith(("prefetch", "ahead"))}


def test_items_come_in_order_and_an_error_after_the_items_before_it() -> None:
    def produce(stop: threading.Event) -> Generator[int]:
        yield from range(5)
        raise RuntimeError("in the thread")

    items = prefetched(produce, 2)
    assert list(islice(items, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="in the thread"):
        next(items)
    assert not _threads()


def test_a_limited_number_of_items_is_made_ahead() -> None:
    made: list[int] = []
    third = threading.Event()

    def produce(stop: threading.Event) -> Generator[int]:
        for number in range(100):
            made.append(number)
            if number == 3:
                third.set()
            yield number

    items = prefetched(produce, 2)
    assert next(items) == 0
    assert third.wait(10)
    assert not threading.Event().wait(0.3)
    assert made == [0, 1, 2, 3]
    items.close()


@pytest.mark.parametrize("yielded", [1, 1_000_000], ids=["waits for the event", "waits for its reader"])
def test_closing_ends_a_producer_and_runs_its_clean_up(yielded: int) -> None:
    cleaned = threading.Event()

    def produce(stop: threading.Event) -> Generator[int]:
        try:
            yield from range(yielded)
            stop.wait()
        finally:
            cleaned.set()

    items = prefetched(produce, 1)
    next(items)
    items.close()
    assert cleaned.is_set()
    assert not _threads()


def test_pools_keep_the_order_look_a_limited_number_ahead_and_leave_no_thread() -> None:
    taken, before = list[int](), _threads()

    def items() -> Generator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    with ThreadPoolExecutor(3) as pool:
        results = in_order(pool, lambda number: number * number, items(), 4)
        assert next(results) == (0, 0)
        assert taken == [0, 1, 2, 3, 4]
        assert list(results) == [(number, number * number) for number in range(1, 20)]
    found = mapped(lambda number: number * number, iter(range(1000)), 2)
    assert list(islice(found, 3)) == [(0, 0), (1, 1), (2, 4)]
    found.close()
    assert _threads() == before
    with pytest.raises(ZeroDivisionError):
        list(mapped(lambda number: 1 // number, [2, 1, 0], 2))
