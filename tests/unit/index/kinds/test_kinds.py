"""Every kind finds what exact search finds, also behind a filter, and refuses files that are not its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.errors import InputError
from components.index.exact_search import search_exact
from components.index.kinds import approximate, choose_kind, find_kind, ivf_pq, kind_names
from components.index.vectors import Vectors
from tests.support.index_making import drawn, unit

ROWS, DIM = 3000, 16
APPROXIMATE = [name for name in kind_names() if find_kind(name).write is not None]


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    whole = unit(drawn(ROWS, dim=DIM))
    return Vectors([whole[:1000], whole[1000:]], DIM)


@pytest.fixture(scope="module")
def written(vectors: Vectors, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kinds")
    paths = {name: folder / f"{name}.bin" for name in APPROXIMATE}
    for name, path in paths.items():
        write = find_kind(name).write
        assert write is not None
        write(path, vectors, None, 0)
    return paths


def recall(found: Any, best: Any) -> float:
    pairs = zip(found.tolist(), best.tolist(), strict=True)
    return float(np.mean([len(set(own) & set(true)) / len(set(true)) for own, true in pairs]))


@pytest.mark.parametrize("name", kind_names())
def test_the_largest_effort_finds_nearly_all(name: str, vectors: Vectors, written: dict[str, Path]) -> None:
    kind, queries = find_kind(name), unit(drawn(50, 1, DIM))
    searcher = kind.open(written.get(name), vectors)
    best = search_exact(vectors, queries, 10)
    found = searcher.search(queries, 10, max(kind.efforts, default=0))
    assert recall(found.rows, best.rows) >= (1.0 if not kind.efforts else 0.95)
    # Scores are cosines, and not what the kind's own file makes of them.
    scores = np.einsum("qd,qkd->qk", queries, vectors.take(found.rows.ravel()).reshape(50, 10, DIM))
    assert np.allclose(found.scores, scores, atol=1e-6)
    assert (np.diff(found.scores) <= 0).all()


@pytest.mark.parametrize("name", kind_names())
@pytest.mark.parametrize("few", [1, 20_000])
def test_a_filter_leaves_only_its_rows(
    name: str, few: int, vectors: Vectors, written: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(approximate, "_FEW", few)
    kind, queries = find_kind(name), unit(drawn(20, 2, DIM))
    searcher = kind.open(written.get(name), vectors)
    for rows in (np.arange(0, ROWS, 2), np.array([5, 17, 2999]), np.arange(100)):
        found = searcher.search(queries, 5, max(kind.efforts, default=0), rows)
        best = search_exact(vectors, queries, 5, rows)
        assert set(found.rows.ravel().tolist()) <= {-1, *rows.tolist()}
        assert recall(found.rows, best.rows) > 0.9
        assert ((found.rows == -1) == (best.rows == -1)).all()


@pytest.mark.parametrize("name", APPROXIMATE)
def test_new_rows_are_added_to_what_was_there(
    name: str, vectors: Vectors, written: dict[str, Path], tmp_path: Path
) -> None:
    new = unit(drawn(200, 3, DIM))
    whole = Vectors([*(block for _, block in vectors.blocks(ROWS)), new], DIM)
    kind = find_kind(name)
    assert kind.write is not None
    kind.write(tmp_path / "more.bin", whole, written[name], ROWS)
    searcher = kind.open(tmp_path / "more.bin", whole)
    found = searcher.search(new[:50], 1, max(kind.efforts))
    assert np.mean(found.rows[:, 0] == np.arange(ROWS, ROWS + 50)) > 0.95
    with pytest.raises(InputError, match=rf"the {ROWS} vectors of the index: build the index again"):
        kind.open(tmp_path / "more.bin", vectors)


@pytest.mark.parametrize("name", APPROXIMATE)
def test_more_than_there_are_can_be_asked_for(name: str, tmp_path: Path) -> None:
    kind, vectors = find_kind(name), Vectors([unit(drawn(1000, dim=DIM))], DIM)
    assert kind.write is not None
    kind.write(tmp_path / "few.bin", vectors, None, 0)
    found = kind.open(tmp_path / "few.bin", vectors).search(vectors.take(np.array([3])), 1200, max(kind.efforts))
    assert found.rows.shape == (1, 1200)
    assert found.rows[0, 0] == 3
    assert (found.rows[0, 1000:] == -1).all()


@pytest.mark.parametrize("name", APPROXIMATE)
def test_a_damaged_file_is_refused(name: str, vectors: Vectors, written: dict[str, Path], tmp_path: Path) -> None:
    path, raw = tmp_path / "cut.bin", written[name].read_bytes()
    for damaged in (b"no index at all", raw[: len(raw) // 2]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=r"cut\.bin .*: build the index again"):
            find_kind(name).open(path, vectors)


@pytest.mark.parametrize("name", APPROXIMATE)
def test_sizes_are_as_told(name: str, vectors: Vectors, written: dict[str, Path]) -> None:
    # Lists have their centres besides, which do not grow with the vectors.
    centres = 4 * DIM * (ROWS // 39) + 4 * DIM * 256 if name == "ivf_pq" else 0
    size = written[name].stat().st_size - centres
    assert size == pytest.approx(ROWS * find_kind(name).bytes_per_vector(DIM), rel=0.15)


def test_auto_is_exact_up_to_a_million() -> None:
    assert [choose_kind("auto", rows) for rows in (1, 1_000_000, 1_000_001, 10**8)] == [
        "exact", "exact", "usearch", "usearch",
    ]  # fmt: skip
    assert choose_kind("ivf_pq", 3) == "ivf_pq"
    with pytest.raises(InputError, match="--kind 'usearc' is unknown: did you mean 'usearch'"):
        choose_kind("usearc", 3)


def test_without_faiss_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="needs 1000 images, there are 999: choose exact"):
        find_kind("ivf_pq").require(999)
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(InputError, match=r"^--kind ivf_pq needs faiss: pip install 'cliptune\[faiss\]', or choose us"):
        find_kind("ivf_pq").require(10_000)


def test_codes_divide_the_vector() -> None:
    assert [ivf_pq._codes(dim) for dim in (512, 640, 7, 20, 1)] == [64, 80, 1, 2, 1]
