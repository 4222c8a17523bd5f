"""`check` reports every fault with its fix; recall is measured on texts, with the smallest sufficient effort."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.system.errors import InputError
from components.encoders.adapter.encoder import Encoder
from components.index.building import build, remeasure
from components.index.checking import check
from components.index.facts import FACTS, read_facts, rows_file, structure_file, vectors_file, write_facts
from components.index.image_index import ImageIndex
from components.index.search import EFFORTS, Found, search_exact
from components.index.sources import find_source
from components.index.tuning import measured, read_queries
from components.registry.encoder_lookup import encoder_under_test
from tests.support.index_making import OTHER_TOWER, drawn, make_index, opened, other, toy, write_vectors
from tests.support.toy_context import colour_image


@pytest.fixture(scope="module")
def approximate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("approximate")
    make_index(folder, 1000, "ivf_pq")
    return folder / "index"


@pytest.fixture
def folder(approximate: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(approximate, tmp_path / "index"))


def flipped(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def with_row(folder: Path, row: np.ndarray) -> None:
    path = vectors_file(folder, 0)
    array = np.load(path)
    array[7] = row
    np.save(path, array)


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "vectors": (lambda folder: flipped(vectors_file(folder, 0)), "000000.npy", "its SHA-256 differs"),
    "rows": (lambda folder: flipped(rows_file(folder, 0)), "000000.arrow", ""),
    "structure": (lambda folder: flipped(structure_file(folder, 0)), "000000.bin", "its SHA-256 differs"),
    "no vectors": (lambda folder: vectors_file(folder, 0).unlink(), "000000.npy", "No such file"),
    "no rows": (lambda folder: rows_file(folder, 0).unlink(), "000000.arrow", "is missing"),
    "no structure": (lambda folder: structure_file(folder, 0).unlink(), "000000.bin", "is missing"),
    "nan": (lambda folder: with_row(folder, np.full(8, np.nan)), "000000.npy", "row 7 is not finite"),
    "long": (lambda folder: with_row(folder, np.eye(8)[0] * 2), "000000.npy", "row 7 has length 2.000, not 1"),
    "stray": (lambda folder: (folder / "vectors" / "x.npy").touch(), "x.npy", "is not part of the index"),
    "facts": (lambda folder: flipped(folder / FACTS), "index.json", ""),
}


def test_every_fault_is_named_with_its_fix(approximate: Path, tmp_path: Path) -> None:
    found = check(approximate)
    assert (found.problems, found.pictures, found.without) == ((), 0, 200)
    assert found.facts == read_facts(approximate)
    for name, (damage, where, what) in DAMAGE.items():
        folder = Path(shutil.copytree(approximate, tmp_path / name))
        damage(folder)
        problems = check(folder).problems
        described = [f"{problem.where} {problem.what}" for problem in problems]
        assert any(where in problem and what in problem for problem in described), (name, described)
        assert all(problem.fix for problem in problems)


def test_rows_said_twice_are_found(tmp_path: Path) -> None:
    make_index(tmp_path, 5)
    folder = tmp_path / "index"
    facts = read_facts(folder)
    for file in (vectors_file, rows_file):
        file(folder, 1).write_bytes(file(folder, 0).read_bytes())
    write_facts(folder, facts.model_copy(update={"segments": facts.segments * 2}))
    (problem,) = check(folder).problems
    assert problem.what == "5 rows have the image id of another row"


def test_a_recall_below_the_target_is_a_problem(folder: Path) -> None:
    facts = read_facts(folder)
    (recall,) = facts.recalls
    low = recall.model_copy(update={"recall_at_10": 0.9, "encoder": "other"})
    write_facts(folder, facts.model_copy(update={"recalls": (recall, low)}))
    (problem,) = check(folder).problems
    assert problem.what == "recall@10 of text queries of 'other' is 0.900, below 0.95"


def test_pictures_that_moved_or_changed_are_named(tiny_encoder: Encoder, tmp_path: Path) -> None:
    paths = [tmp_path / "pictures" / f"{number}.png" for number in range(5)]
    for number, path in enumerate(paths):
        colour_image(path, (number, 0, 0))
    raw = [path.read_bytes() for path in paths]
    source = find_source("folder").open(str(tmp_path / "pictures"), encoder_under_test("tiny", tiny_encoder))
    build(tmp_path / "index", source)
    index = ImageIndex.open(tmp_path / "index")
    assert [index.picture(row) for row in range(5)] == raw
    assert check(tmp_path / "index").pictures == 5
    paths[1].unlink()
    paths[3].write_bytes(raw[3][:-1] + b"?")
    found = check(tmp_path / "index", every=True)
    assert found.pictures == 3
    for row, problem in zip((1, 3), found.problems, strict=True):
        refusal = f"{row}.png (row {row}) is missing, or is not the picture that was indexed"
        assert problem.what.endswith(refusal)
        assert problem.fix == "put it back, or build the index again"
        with pytest.raises(InputError, match=re.escape(refusal)):
            index.picture(row)


class _Coarse:
    """Returns the best rows if the effort is enough, else useless ones."""

    def __init__(self, index: ImageIndex, enough: int) -> None:
        self._index, self._enough, self.asked = index, enough, list[int]()

    def search(self, queries: Any, k: int, effort: int, rows: Any = None) -> Found:
        self.asked.append(effort)
        found = search_exact(self._index.vectors, queries, k)
        if effort < self._enough:
            found.rows[:, k // 2 :] = -1
        return found


def measured_with(index: ImageIndex, enough: int, name: str = "toy") -> tuple[Any, list[int]]:
    index.search_unit = (coarse := _Coarse(index, enough)).search  # type: ignore[method-assign]
    return measured(index, other(toy(name), sha256=name)), coarse.asked


def test_the_least_effort_that_is_enough_is_kept(folder: Path) -> None:
    index, efforts = ImageIndex.open(folder), EFFORTS
    index.facts = index.facts.model_copy(update={"effort": 0, "recalls": ()})
    facts, asked = measured_with(index, efforts[2])
    assert asked == list(efforts[:3])
    assert (facts.effort, facts.recalls[0].recall_at_10, facts.recalls[0].queries) == (efforts[2], 1.0, 1000)
    index.facts = facts
    facts, asked = measured_with(index, efforts[0], "easier")
    assert asked == [efforts[2]]
    assert [one.encoder for one in facts.recalls] == ["toy", "easier"]
    assert facts.effort == efforts[2]
    index.facts = facts
    facts, _ = measured_with(index, 1 << 30, "hopeless")
    assert (facts.effort, facts.recalls[-1].recall_at_10) == (efforts[-1], 0.5)
    index.facts = facts
    assert len(measured_with(index, 1, "hopeless")[0].recalls) == 3


def test_an_exact_index_is_not_measured(tmp_path: Path) -> None:
    make_index(tmp_path, 40)
    before = read_facts(tmp_path / "index")
    assert remeasure(tmp_path / "index", toy()) == before
    assert not before.recalls
    with pytest.raises(InputError, match="encoder 'stranger' has image tower"):
        remeasure(tmp_path / "index", toy("stranger", OTHER_TOWER))


def test_an_encoder_that_gives_no_numbers_is_refused(tmp_path: Path) -> None:
    write_vectors(tmp_path / "vectors", 0, drawn(1000))
    broken = toy()
    broken.encoder.table = {"a dog": [np.nan] * 8}  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="gives 'a dog' a non-finite feature"):
        build(tmp_path / "index", opened(tmp_path / "vectors"), "ivf_pq", broken, ["a dog"])


def test_queries_are_lines_of_text(tmp_path: Path) -> None:
    path = tmp_path / "queries.txt"
    path.write_text("\ufeffa dog\n\n a cat \r\na dog\n", "utf-8")
    assert read_queries(path) == ["a dog", "a cat"]
    path.write_text("\n".join(f"query {number}" for number in range(5000)))
    found = read_queries(path)
    assert (len(found), found[0], found[-1]) == (1000, "query 0", "query 4999")
    for raw in (b"\xff\xfe", b"\n \n"):
        path.write_bytes(raw)
        with pytest.raises(InputError, match=r"--queries .*queries\.txt"):
            read_queries(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_queries(tmp_path / "none.txt")
