"""Samples are uniform, bounded, and the same however the rows are cut into shards."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.validation.reporting.report import MOST_REASONS, Example, Examples, sample_rows


def _example(row: int) -> Example:
    return Example(row, f"pair{row}", 0, {"caption": "c"}, ("even" if row % 2 == 0 else "odd", "all"))


def test_all_rows_where_there_are_no_more() -> None:
    assert sample_rows(7, most=7).tolist() == list(range(7))


def test_a_sample_is_distinct_sorted_and_spread() -> None:
    sample = sample_rows(100_000, most=1000)
    assert len(set(sample.tolist())) == 1000
    assert (np.diff(sample) > 0).all()
    tenths = np.bincount(sample // 10_000, minlength=10)
    assert tenths.min() > 60
    assert tenths.max() < 140


@given(cuts=st.lists(st.integers(0, 400), max_size=6))
def test_examples_do_not_depend_on_the_shards(cuts: list[int]) -> None:
    rows = [_example(row) for row in range(400)]
    whole, parts = Examples(), Examples()
    whole.add(rows)
    edges = [0, *sorted(cuts), 400]
    for start, end in pairwise(edges):
        parts.add(rows[start:end])
    for reason in ("all", "even", "odd"):
        assert parts.of(reason) == whole.of(reason)
        assert len(whole.of(reason)) == 5
    assert {example.row % 2 for example in whole.of("odd")} == {1}
    assert [example.row for example in whole.of("all")] != list(range(5))


def test_reasons_without_end_are_bounded() -> None:
    examples = Examples()
    examples.add(Example(row, "pair", 0, {}, (f"failed: {row}",)) for row in range(2 * MOST_REASONS))
    assert examples.of("failed: 0") != []
    assert examples.of(f"failed: {2 * MOST_REASONS - 1}") == []
