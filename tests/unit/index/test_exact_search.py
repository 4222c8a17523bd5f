"""Exact search is NumPy's sort of all cosines, whatever segments, blocks and filters there are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.errors import InputError
from components.index import exact_search
from components.index.exact_search import merged, search_exact
from components.index.vectors import Vectors


def reference(vectors: Any, queries: Any, k: int, rows: Any) -> Any:
    """Rows by descending score, ties in their order; -1 behind the last."""
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T
    found = []
    for row in scores:
        order = np.argsort(-row, kind="stable")
        kept = [number for number in order if rows is None or number in rows][:k]
        found.append(kept + [-1] * (k - len(kept)))
    return np.array(found).reshape(len(queries), k)


@given(data=st.data())
def test_it_is_a_stable_sort_of_all_scores(data: st.DataObject) -> None:
    dim = data.draw(st.integers(1, 3))
    # Whole numbers have exact products, and few of them make many ties.
    row = st.lists(st.integers(-1, 1), min_size=dim, max_size=dim)
    segments = [
        np.array(segment, np.float32)
        for segment in data.draw(st.lists(st.lists(row, min_size=1, max_size=12), min_size=1, max_size=3))
    ]
    whole = np.concatenate(segments)
    queries = np.array(data.draw(st.lists(row, min_size=1, max_size=3)), np.float32)
    k = data.draw(st.integers(1, len(whole) + 2))
    chosen = data.draw(st.none() | st.sets(st.integers(0, len(whole) - 1)))
    rows = None if chosen is None else np.array(sorted(chosen), np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_search, "_CELLS", data.draw(st.sampled_from([4, 1 << 20])))
        patch.setattr(exact_search, "_DENSE", data.draw(st.sampled_from([1, 8])))
        patch.setattr(exact_search, "_QUERIES", 2)
        found = search_exact(Vectors(segments, dim), queries, k, rows)
    expected = reference(whole, queries, k, chosen)
    assert found.rows.tolist() == expected.tolist()
    there = expected >= 0
    scores = np.take_along_axis(queries @ whole.T, np.where(there, expected, 0), axis=1)
    assert np.where(there, scores, -np.inf).tolist() == found.scores.tolist()


def test_a_vector_that_is_not_finite_is_named_by_its_row() -> None:
    bad = np.ones((5, 2), np.float32)
    bad[3, 1] = np.nan
    with pytest.raises(InputError, match="the vector of row 3 is not finite: `cliptune index check` names its file"):
        search_exact(Vectors([bad], 2), np.ones((1, 2), np.float32), 1)


def test_no_queries_find_nothing() -> None:
    found = search_exact(Vectors([np.ones((5, 2), np.float32)], 2), np.empty((0, 2), np.float32), 3)
    assert found.scores.shape == found.rows.shape == (0, 3)


def test_merging_puts_the_earlier_row_first_and_fills_up() -> None:
    found = merged(np.array([[0.5, -np.inf, 0.5]], np.float32), np.array([[7, 1, 2]]), 4)
    assert found.rows.tolist() == [[2, 7, -1, -1]]
    assert found.scores.tolist() == [[0.5, 0.5, -np.inf, -np.inf]]
