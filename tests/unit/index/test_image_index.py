"""`ImageIndex`: who may ask, what is found, and rows and pictures of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from components.core.system.errors import InputError
from components.core.tables.files import image_id
from components.index.building import append
from components.index.facts import read_facts, rows_file, structure_file, vectors_file
from components.index.image_index import ImageIndex, picture_of, spread
from tests.support.index_making import DIM, OTHER_TOWER, drawn, make_index, opened, other, toy, unit, write_vectors


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
