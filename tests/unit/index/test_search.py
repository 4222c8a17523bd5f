"""Exact search is NumPy's sort of all cosines; approximate search returns nearly the same, also with a filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.system.errors import InputError
from components.index import search
from components.index.facts import choose_kind
from components.index.search import EFFORTS, ApproximateSearch, bytes_per_vector, check_rows, search_exact, write_lists
from components.index.vectors import Vectors
from tests.support.index_making import drawn, unit

ROWS, DIM = 3000, 16


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
def test_exact_search_is_a_stable_sort_of_all_scores(data: st.DataObject) -> None:
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
        patch.setattr(search, "_CELLS", data.draw(st.sampled_from([4, 1 << 20])))
        patch.setattr(search, "_QUERIES", 2)
        found = search_exact(Vectors(segments, dim), queries, k, rows)
    expected = reference(whole, queries, k, chosen)
    assert found.rows.tolist() == expected.tolist()
    valid = expected >= 0
    scores = np.take_along_axis(queries @ whole.T, np.where(valid, expected, 0), axis=1)
    assert np.where(valid, scores, -np.inf).tolist() == found.scores.tolist()


def test_a_vector_that_is_not_finite_and_no_queries() -> None:
    bad = np.ones((5, 2), np.float32)
    bad[3, 1] = np.nan
    with pytest.raises(InputError, match="the vector of row 3 is not finite: `cliptune index check` names its file"):
        search_exact(Vectors([bad], 2), np.ones((1, 2), np.float32), 1)
    found = search_exact(Vectors([bad], 2), np.empty((0, 2), np.float32), 3)
    assert found.scores.shape == found.rows.shape == (0, 3)


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    whole = unit(drawn(ROWS, dim=DIM))
    return Vectors([whole[:1000], whole[1000:]], DIM)


@pytest.fixture(scope="module")
def lists(vectors: Vectors, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lists") / "lists.bin"
    write_lists(path, vectors, None, 0)
    return path


def recall(found: Any, best: Any) -> float:
    pairs = zip(found.tolist(), best.tolist(), strict=True)
    return float(np.mean([len(set(own) & set(true)) / len(set(true)) for own, true in pairs]))


def test_the_largest_effort_finds_nearly_all_with_exact_scores(vectors: Vectors, lists: Path) -> None:
    queries = unit(drawn(50, 1, DIM))
    found = ApproximateSearch(lists, vectors).search(queries, 10, EFFORTS[-1])
    assert recall(found.rows, search_exact(vectors, queries, 10).rows) >= 0.95
    scores = np.einsum("qd,qkd->qk", queries, vectors.take(found.rows.ravel()).reshape(50, 10, DIM))
    assert np.allclose(found.scores, scores, atol=1e-6)
    assert (np.diff(found.scores) <= 0).all()
    many = ApproximateSearch(lists, vectors).search(queries[:1], ROWS + 200, EFFORTS[-1]).rows
    assert many.shape == (1, ROWS + 200)
    assert (many[0, ROWS:] == -1).all()


@pytest.mark.parametrize("exact_below", [1, 20_000])
def test_a_filter_leaves_only_its_rows(
    exact_below: int, vectors: Vectors, lists: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_EXACT_BELOW", exact_below)
    queries, searcher = unit(drawn(20, 2, DIM)), ApproximateSearch(lists, vectors)
    for rows in (np.arange(0, ROWS, 2), np.array([5, 17, 2999]), np.arange(100)):
        found, best = searcher.search(queries, 5, EFFORTS[-1], rows), search_exact(vectors, queries, 5, rows)
        assert set(found.rows.ravel().tolist()) <= {-1, *rows.tolist()}
        assert recall(found.rows, best.rows) > 0.9
        assert ((found.rows == -1) == (best.rows == -1)).all()


def test_new_rows_are_added_to_the_previous_file(vectors: Vectors, lists: Path, tmp_path: Path) -> None:
    new, path = unit(drawn(200, 3, DIM)), tmp_path / "more.bin"
    whole = Vectors([*(block for _, block in vectors.blocks(ROWS)), new], DIM)
    write_lists(path, whole, lists, ROWS)
    found = ApproximateSearch(path, whole).search(new[:50], 1, EFFORTS[-1])
    assert np.mean(found.rows[:, 0] == np.arange(ROWS, ROWS + 50)) > 0.95
    with pytest.raises(InputError, match=rf"does not fit the {ROWS} vectors of the index: build the index again"):
        ApproximateSearch(path, vectors)


def test_sizes_and_codes(lists: Path) -> None:
    # The centres of lists and codes do not grow with the vectors.
    centres = 4 * DIM * (ROWS // 39) + 4 * DIM * 256
    assert lists.stat().st_size - centres == pytest.approx(ROWS * bytes_per_vector(DIM), rel=0.15)
    assert [bytes_per_vector(dim) - 8 for dim in (512, 640, 7, 20, 1)] == [64, 80, 1, 2, 1]


def test_auto_is_exact_up_to_a_million() -> None:
    kinds = [choose_kind("auto", rows) for rows in (1, 1_000_000, 1_000_001, 10**8)]
    assert kinds == ["exact", "exact", "ivf_pq", "ivf_pq"]
    assert choose_kind("ivf_pq", 3) == "ivf_pq"
    with pytest.raises(InputError, match="--kind 'ivfpq' is unknown: did you mean 'ivf_pq'"):
        choose_kind("ivfpq", 3)
    with pytest.raises(InputError, match="needs at least 1000 images, there are 999: use --kind exact"):
        check_rows(999)
