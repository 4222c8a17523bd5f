"""Exact search is NumPy's sort of all cosines, approximate search returns nearly the same; rows and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.index import search
from components.index.building import append
from components.index.facts import choose_kind, read_facts, rows_file, structure_file, vectors_file
from components.index.image_index import ImageIndex, picture_of, spread
from components.index.search import EFFORTS, ApproximateSearch, bytes_per_vector, check_rows, search_exact, write_lists
from components.index.vectors import Vectors
from tests.support.index_making import DIM, OTHER_TOWER, drawn, make_index, opened, other, toy, unit, write_vectors

ROWS, WIDTH = 3000, 16


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
    whole = unit(drawn(ROWS, dim=WIDTH))
    return Vectors([whole[:1000], whole[1000:]], WIDTH)


@pytest.fixture(scope="module")
def lists(vectors: Vectors, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lists") / "lists.bin"
    write_lists(path, vectors, None, 0)
    return path


def recall(found: Any, best: Any) -> float:
    pairs = zip(found.tolist(), best.tolist(), strict=True)
    return float(np.mean([len(set(own) & set(true)) / len(set(true)) for own, true in pairs]))


def test_the_largest_effort_finds_nearly_all_with_exact_scores(vectors: Vectors, lists: Path) -> None:
    queries = unit(drawn(50, 1, WIDTH))
    found = ApproximateSearch(lists, vectors).search(queries, 10, EFFORTS[-1])
    assert recall(found.rows, search_exact(vectors, queries, 10).rows) >= 0.95
    scores = np.einsum("qd,qkd->qk", queries, vectors.take(found.rows.ravel()).reshape(50, 10, WIDTH))
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
    queries, searcher = unit(drawn(20, 2, WIDTH)), ApproximateSearch(lists, vectors)
    for rows in (np.arange(0, ROWS, 2), np.array([5, 17, 2999]), np.arange(100)):
        found, best = searcher.search(queries, 5, EFFORTS[-1], rows), search_exact(vectors, queries, 5, rows)
        assert set(found.rows.ravel().tolist()) <= {-1, *rows.tolist()}
        assert recall(found.rows, best.rows) > 0.9
        assert ((found.rows == -1) == (best.rows == -1)).all()


def test_new_rows_are_added_to_the_previous_file(vectors: Vectors, lists: Path, tmp_path: Path) -> None:
    new, path = unit(drawn(200, 3, WIDTH)), tmp_path / "more.bin"
    whole = Vectors([*(block for _, block in vectors.blocks(ROWS)), new], WIDTH)
    write_lists(path, whole, lists, ROWS)
    found = ApproximateSearch(path, whole).search(new[:50], 1, EFFORTS[-1])
    assert np.mean(found.rows[:, 0] == np.arange(ROWS, ROWS + 50)) > 0.95
    with pytest.raises(InputError, match=rf"does not fit the {ROWS} vectors of the index: build the index again"):
        ApproximateSearch(path, vectors)


def test_sizes_and_codes(lists: Path) -> None:
    # The centres of lists and codes do not grow with the vectors.
    centres = 4 * WIDTH * (ROWS // 39) + 4 * WIDTH * 256
    assert lists.stat().st_size - centres == pytest.approx(ROWS * bytes_per_vector(WIDTH), rel=0.15)
    assert [bytes_per_vector(dim) - 8 for dim in (512, 640, 7, 20, 1)] == [64, 80, 1, 2, 1]


def test_auto_is_exact_up_to_a_million() -> None:
    kinds = [choose_kind("auto", rows) for rows in (1, 1_000_000, 1_000_001, 10**8)]
    assert kinds == ["exact", "exact", "ivf_pq", "ivf_pq"]
    assert choose_kind("ivf_pq", 3) == "ivf_pq"
    with pytest.raises(InputError, match="--kind 'ivfpq' is unknown: did you mean 'ivf_pq'"):
        choose_kind("ivfpq", 3)
    with pytest.raises(InputError, match="needs at least 1000 images, there are 999: use --kind exact"):
        check_rows(999)


@pytest.fixture
def index(tmp_path: Path) -> ImageIndex:
    make_index(tmp_path, 40, width=list(range(40)))
    return ImageIndex.open(tmp_path / "index")


def test_an_encoder_with_the_same_tower_is_taken_without_building(index: ImageIndex) -> None:
    index.accept(other(toy(), name="another text side", sha256="other"))
    refusal = (
        r"index was built with image tower aaaaaaaaaaaa \(of 'toy'\), encoder 'stranger' has image tower bbbbbbbbbbbb: "
        "choose an encoder trained from 'toy', or build an index with --encoder stranger"
    )
    with pytest.raises(InputError, match=refusal):
        index.accept(toy("stranger", OTHER_TOWER))
    with pytest.raises(InputError, match="encoder 'text' has no image tower"):
        index.accept(toy("text", None))


def test_search_equals_numpy(index: ImageIndex) -> None:
    vectors, queries = unit(drawn(40)), drawn(3, 1)
    found = index.search(queries, 5)
    scores = unit(queries) @ vectors.T
    assert found.rows.tolist() == np.argsort(-scores, axis=1, kind="stable")[:, :5].tolist()
    assert np.allclose(found.scores, -np.sort(-scores, axis=1)[:, :5], atol=1e-6)
    assert len(index) == 40
    assert np.allclose(index.vector([7, 3]), vectors[[7, 3]], atol=1e-6)


def test_filters_are_marks_or_numbers(index: ImageIndex) -> None:
    wide = np.asarray(index.column("width")) >= 30
    marked, numbered = index.search(drawn(2), 20, wide), index.search(drawn(2), 20, range(39, 29, -1))
    assert marked.rows.tolist() == numbered.rows.tolist()
    assert set(marked.rows[:, :10].ravel().tolist()) == set(range(30, 40))
    assert (marked.rows[:, 10:] == -1).all()
    assert np.isneginf(marked.scores[:, 10:]).all()
    nothing = index.search(drawn(2), 3, np.zeros(40, np.bool_))
    assert nothing.rows.tolist() == [[-1] * 3] * 2


def test_wrong_queries_and_filters_are_refused(index: ImageIndex) -> None:
    one = np.ones((1, DIM))
    for vectors, k, rows, refusal in (
        (np.ones((1, DIM + 1)), 1, None, r"query vectors of shape \(1, 9\) do not fit"),
        (np.ones(DIM), 1, None, r"query vectors of shape \(8,\) do not fit"),
        (np.full((1, DIM), np.nan), 1, None, "a query vector is not finite"),
        (one, 0, None, "cannot search for 0 images"),
        (one, 1, np.ones(39, np.bool_), r"a filter of \(39,\) marks does not fit the 40 rows"),
        (one, 1, [40], "has rows 0 to 39, not 40 to 40"),
        (one, 1, [-1], "has rows 0 to 39"),
        (one, 1, [0.5], "row numbers are whole"),
    ):
        with pytest.raises(InputError, match=refusal):
            index.search(vectors, k, rows)  # type: ignore[arg-type]


def test_rows_have_captions_columns_and_image_ids(index: ImageIndex) -> None:
    found = index.rows([5, 2]).to_pylist()
    assert [(row["caption"], row["width"]) for row in found] == [("caption 0 5", 5), ("caption 0 2", 2)]
    assert [row["image_id"] for row in found] == [image_id(drawn(40)[row].tobytes()) for row in (5, 2)]
    assert index.schema.names == ["image_id", "caption", "name", "file", "position", "size", "width"]
    with pytest.raises(InputError, match="has only a vector"):
        index.picture(2)


@pytest.mark.parametrize("file", ["/dev/zero", "/proc/self/mem", "a\0b", "."])
def test_no_device_is_read_for_a_picture(file: str) -> None:
    row = {"image_id": "0" * 16, "name": "x", "file": file, "position": None, "size": 10}
    for changed in (row, row | {"position": 0}, row | {"size": 1 << 60}, row | {"position": -5}):
        with pytest.raises(InputError, match="is missing, or is not the picture"):
            picture_of(changed, 0, None)  # type: ignore[arg-type]


def test_truncated_and_linked_files_are_refused(tmp_path: Path) -> None:
    make_index(tmp_path, 1000, "ivf_pq")
    folder = tmp_path / "index"
    for path in (vectors_file(folder, 0), rows_file(folder, 0), structure_file(folder, 0)):
        raw = path.read_bytes()
        path.write_bytes(raw[:-40])
        with pytest.raises(InputError, match=f"{path.name} .*: build the index again"):
            ImageIndex.open(folder)
        path.unlink()
        (tmp_path / "elsewhere").write_bytes(raw)
        path.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError, match=f"{path.name} is a link"):
            ImageIndex.open(folder)
        path.unlink()
        path.write_bytes(raw)
    (folder / "vectors").rename(tmp_path / "moved")
    (folder / "vectors").symlink_to(tmp_path / "moved")
    with pytest.raises(InputError, match="vectors is a link"):
        ImageIndex.open(folder)


def test_an_opened_index_does_not_change_while_others_append(tmp_path: Path) -> None:
    make_index(tmp_path, 1000, "ivf_pq")
    index = ImageIndex.open(tmp_path / "index")
    before = index.search(drawn(3), 5)
    write_vectors(tmp_path / "more", 1, drawn(10, 9))
    append(tmp_path / "index", opened(tmp_path / "more"), toy())
    assert index.search(drawn(3), 5).rows.tolist() == before.rows.tolist()
    assert len(ImageIndex.open(tmp_path / "index")) == 1010


def test_facts_are_read_again_if_files_changed_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_index(tmp_path, 40)
    facts = read_facts(tmp_path / "index")
    stale = facts.model_copy(update={"segments": (*facts.segments, *facts.segments)})
    answers = iter([stale, facts])
    monkeypatch.setattr("components.index.image_index.read_facts", lambda _folder: next(answers))
    assert len(ImageIndex.open(tmp_path / "index")) == 40


def test_captions_are_different_and_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_index(tmp_path, 3000, caption=["same"] * 10 + [f"text {row}" for row in range(2990)])
    found = ImageIndex.open(tmp_path / "index").captions
    assert len(found) == len(set(found)) == 1000
    assert {"same", "text 2989"} <= set(found)
    # If few images have a caption, all are read.
    monkeypatch.setattr("components.index.image_index._CAPTIONS", 10)
    assert 34 not in spread(100, 40)
    make_index(tmp_path / "rare", 100, caption=[None if row != 34 else "the only one" for row in range(100)])
    assert ImageIndex.open(tmp_path / "rare" / "index").captions == ["the only one"]
