"""Search is NumPy's sort of all cosines; filters are conditions in SQL; rows and pictures."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.system.errors import InputError
from components.core.system.user_files import Bound
from components.core.tables.files import image_id
from components.encoders.adapter.encoder import Encoder
from components.registry.encoder_lookup import encoder_under_test
from components.serving.index import kinds
from components.serving.index.building import build
from components.serving.index.image_index import KINDS, ImageIndex
from components.serving.index.kinds import ROWS, VECTORS
from tests.support.index_making import DIM, OTHER_TOWER, drawn, make_index, opened, toy, unit
from tests.support.toy_context import colour_image


@pytest.fixture(params=KINDS)
def index(request: pytest.FixtureRequest, tmp_path: Path) -> ImageIndex:
    make_index(tmp_path, 40, request.param, width=list(range(40)), even=[row % 2 == 0 for row in range(40)])
    return ImageIndex.open(tmp_path / "index")


def test_search_and_filters_equal_numpy_and_wrong_ones_are_refused(index: ImageIndex) -> None:
    vectors, queries = unit(drawn(40)), drawn(3, 1)
    found = index.search(queries, 5)
    scores = unit(queries) @ vectors.T
    assert found.rows.tolist() == np.argsort(-scores, axis=1, kind="stable")[:, :5].tolist()
    assert np.allclose(found.scores, -np.sort(-scores, axis=1)[:, :5], atol=1e-5)
    assert len(index) == 40
    assert np.allclose(index.vector([7, 3, 7]), vectors[[7, 3, 7]], atol=1e-6)
    assert index.search(np.empty((0, DIM)), 3).rows.shape == (0, 3)
    many = index.search(queries[:1], 50)
    assert sorted(many.rows[0, :40].tolist()) == list(range(40))
    assert (many.rows[0, 40:] == -1).all()
    wide = index.search(drawn(2), 20, "width >= 30")
    assert set(wide.rows[:, :10].ravel().tolist()) == set(range(30, 40))
    assert (wide.rows[:, 10:] == -1).all()
    assert np.isneginf(wide.scores[:, 10:]).all()
    assert index.search(drawn(2), 20, '"width" > 29').rows.tolist() == wide.rows.tolist()
    both = index.search(drawn(1), 40, "even AND strpos(lower(caption), 'caption 0 3') > 0").rows
    assert set(both.ravel().tolist()) == {-1, 30, 32, 34, 36, 38}
    assert index.search(drawn(2), 3, "width > 100").rows.tolist() == [[-1] * 3] * 2
    one = np.ones((1, DIM))
    for vectors, k, where, refusal in (
        (np.ones((1, DIM + 1)), 1, None, r"query vectors of shape \(1, 9\) do not fit"),
        (np.ones(DIM), 1, None, r"query vectors of shape \(8,\) do not fit"),
        (np.full((1, DIM), np.nan), 1, None, "a query vector is not finite"),
        (one, 0, None, "cannot search for 0 images"),
        (one, 1, "height > 1", "condition 'height > 1' cannot be read"),
        (one, 1, "width > (SELECT 1 FROM '/etc/passwd')", "cannot be read"),
    ):
        with pytest.raises(InputError, match=refusal):
            index.search(vectors, k, where)
    for rows, refusal in (([3, 40], "correct them"), ([0.5], "row numbers are whole")):
        with pytest.raises(InputError, match=refusal):
            index.rows(rows)


@given(data=st.data())
def test_exact_search_is_a_stable_sort_of_all_scores(data: st.DataObject, tmp_path_factory: Any) -> None:
    # Whole numbers of one length have exact products, and few of them make many ties.
    axes = np.vstack([np.eye(DIM), -np.eye(DIM)]).astype(np.float32)
    whole = axes[data.draw(st.lists(st.integers(0, 15), min_size=1, max_size=12))]
    queries = axes[data.draw(st.lists(st.integers(0, 15), min_size=1, max_size=3))]
    k, folder = data.draw(st.integers(1, len(whole) + 2)), tmp_path_factory.mktemp("index")
    np.save(folder / "mine.npy", whole)
    ids = {row.tobytes(): None for row in whole}
    distinct = np.stack([np.frombuffer(row, np.float32) for row in ids])
    build(folder / "index", opened(folder))
    chosen = data.draw(st.none() | st.sets(st.integers(0, len(distinct) - 1)))
    index = ImageIndex.open(folder / "index")
    named = [str(name) for number, name in enumerate(index.column("name").to_pylist()) if number in (chosen or ())]
    found = index.search(queries, k, None if chosen is None else f"name IN {('', *named)}")
    for scores, own_scores, own in zip(queries @ distinct.T, found.scores, found.rows, strict=True):
        order = [number for number in np.argsort(-scores, kind="stable") if chosen is None or number in chosen][:k]
        assert own.tolist() == order + [-1] * (k - len(order))
        assert own_scores[: len(order)].tolist() == scores[order].tolist()


def test_rows_have_their_columns_and_another_text_side_is_taken(index: ImageIndex) -> None:
    found = index.rows([5, 2]).to_pylist()
    assert [(row["caption"], row["width"], row["even"]) for row in found] == [
        ("caption 0 5", 5, False), ("caption 0 2", 2, True),
    ]  # fmt: skip
    assert [row["image_id"] for row in found] == [image_id(drawn(40)[row].tobytes()) for row in (5, 2)]
    own = ["image_id", "caption", "name", "file", "position", "size"]
    assert sorted(index.schema.names) == sorted([*own, "width", "even"])
    assert index.rows([]).num_rows == 0
    with pytest.raises(InputError, match="has only a vector"):
        index.picture(2)
    index.accept(replace(toy(), name="another text side", sha256="other"))
    refusal = (
        r"index was built with image tower aaaaaaaaaaaa \(of 'toy'\), encoder 'stranger' has image tower bbbbbbbbbbbb: "
        "choose an encoder trained from 'toy', or build an index with --encoder stranger"
    )
    with pytest.raises(InputError, match=refusal):
        index.accept(toy("stranger", OTHER_TOWER))
    with pytest.raises(InputError, match="encoder 'text' has no image tower"):
        index.accept(toy("text", None))


def test_pictures_that_moved_changed_or_are_too_large_are_named(tiny_encoder: Encoder, tmp_path: Path) -> None:
    paths = [tmp_path / "pictures" / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        colour_image(path, (number, 0, 0))
    build(tmp_path / "index", opened(tmp_path / "pictures", encoder_under_test("tiny", tiny_encoder), "folder"))
    index = ImageIndex.open(tmp_path / "index")
    assert index.picture(0) == paths[0].read_bytes()
    with pytest.raises(InputError, match=r"0\.png \(row 0\) is too large: raise prepare\.max_picture_mb"):
        index.picture(0, Bound(10, "prepare.max_picture_mb"))
    paths[1].unlink()
    paths[2].write_bytes(paths[2].read_bytes()[:-1] + b"?")
    for row in (1, 2):
        refusal = f"{row}.png (row {row}) is missing, or is not the picture that was indexed: put it back, or build"
        with pytest.raises(InputError, match=re.escape(refusal)):
            index.picture(row)


@pytest.mark.parametrize("file", ["/dev/zero", "/proc/self/mem", "a\0b", "."])
def test_no_device_is_read_for_a_picture(file: str, index: ImageIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    for position in (None, 0):
        row = {"image_id": "0" * 16, "name": "x", "file": file, "position": position, "size": 10}
        monkeypatch.setattr(index, "rows", lambda _, row=row: pa.Table.from_pylist([row]))
        with pytest.raises(InputError, match="is missing, or is not the picture"):
            index.picture(0)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    make_index(tmp_path, 40)
    folder = tmp_path / "index"
    for path in (folder / VECTORS, folder / ROWS):
        raw = path.read_bytes()
        for spoil in (partial(path.write_bytes, raw[:-40]), path.unlink):
            spoil()
            with pytest.raises(InputError, match=f"{path.name} .*: build the index again"):
                ImageIndex.open(folder)
        path.write_bytes(raw)
    np.save(folder / VECTORS, drawn(39))
    with pytest.raises(InputError, match=r"does not hold the 40 rows that index\.json states: build the index again"):
        ImageIndex.open(folder)
    make_index(tmp_path / "other", 40, "lance")
    (tmp_path / "other/index/rows.lance").rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"has no table of LanceDB .*: build the index again"):
        ImageIndex.open(tmp_path / "other/index")


def test_many_rows_are_searched_approximately(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "INDEXED", 2000)
    for kind in KINDS:
        make_index(tmp_path / kind, 3000, kind)
    exact, approximate = (ImageIndex.open(tmp_path / kind / "index") for kind in KINDS)
    assert isinstance(approximate, kinds.LanceIndex)
    assert len(approximate._table.list_indices()) == 1
    queries = drawn(50, 1)
    best, found = exact.search(queries, 10), approximate.search(queries, 10)
    hits = [len({*own} & {*true}) / 10 for own, true in zip(found.rows.tolist(), best.rows.tolist(), strict=True)]
    assert np.mean(hits) > 0.9
    cosines = np.einsum("qd,qkd->qk", unit(queries), approximate.vector(found.rows.ravel()).reshape(50, 10, DIM))
    assert np.allclose(found.scores, cosines, atol=1e-5)
