"""`check` names every fault with its fix, and nothing in an index that is whole."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.encoders.adapter.encoder import Encoder
from components.index.building import build
from components.index.checking import check
from components.index.facts import FACTS, read_facts, rows_file, structure_file, vectors_file, write_facts
from components.index.sources import find_source
from components.registry.encoder_lookup import encoder_under_test
from tests.support.index_making import make_index
from tests.support.toy_context import colour_image


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_index(tmp_path, 40, "usearch")
    return tmp_path / "index"


def test_a_whole_index_has_no_problem(folder: Path) -> None:
    found = check(folder)
    assert not found.problems
    assert (found.pictures, found.without) == (0, 40)
    assert found.facts == read_facts(folder)


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
    "vectors": (lambda folder: flipped(vectors_file(folder, 0)), "000000.npy", "its SHA-256 is another"),
    "rows": (lambda folder: flipped(rows_file(folder, 0)), "000000.arrow", ""),
    "structure": (lambda folder: flipped(structure_file(folder, 0)), "000000.bin", "its SHA-256 is another"),
    "no vectors": (lambda folder: vectors_file(folder, 0).unlink(), "000000.npy", "No such file"),
    "no rows": (lambda folder: rows_file(folder, 0).unlink(), "000000.arrow", "is missing"),
    "no structure": (lambda folder: structure_file(folder, 0).unlink(), "000000.bin", "is missing"),
    "nan": (lambda folder: with_row(folder, np.full(8, np.nan)), "000000.npy", "row 7 is not finite"),
    "long": (lambda folder: with_row(folder, np.eye(8)[0] * 2), "000000.npy", "row 7 has length 2.000, not 1"),
    "stray": (lambda folder: (folder / "vectors" / "x.npy").touch(), "x.npy", "is no part of the index"),
    "facts": (lambda folder: flipped(folder / FACTS), "index.json", ""),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_every_fault_is_named_with_its_fix(name: str, folder: Path) -> None:
    damage, where, what = DAMAGE[name]
    damage(folder)
    problems = check(folder).problems
    assert problems
    told = [f"{one.where} {one.what}" for one in problems]
    assert any(where in one and what in one for one in told), told
    assert all(one.fix for one in problems)


def test_rows_said_twice_are_found(tmp_path: Path) -> None:
    make_index(tmp_path, 5)
    folder = tmp_path / "index"
    facts = read_facts(folder)
    for file in (vectors_file, rows_file):
        file(folder, 1).write_bytes(file(folder, 0).read_bytes())
    write_facts(folder, facts.model_copy(update={"segments": facts.segments * 2}))
    (problem,) = check(folder).problems
    assert problem.what == "5 rows have the image id of another"


def test_a_recall_below_the_target_is_a_problem(folder: Path) -> None:
    facts = read_facts(folder)
    (recall,) = facts.recalls
    low = recall.model_copy(update={"recall_at_10": 0.9, "encoder": "other"})
    write_facts(folder, facts.model_copy(update={"recalls": (recall, low)}))
    (problem,) = check(folder).problems
    assert problem.what == "text queries of 'other' find 0.900 of the best ten images, below 0.95"


def test_pictures_that_moved_or_changed_are_named(tiny_encoder: Encoder, tmp_path: Path) -> None:
    for number in range(5):
        colour_image(tmp_path / "pictures" / f"{number}.png", (number, 0, 0))
    source = find_source("folder").open(str(tmp_path / "pictures"), encoder_under_test("tiny", tiny_encoder))
    build(tmp_path / "index", source)
    assert check(tmp_path / "index").pictures == 5
    (tmp_path / "pictures" / "1.png").unlink()
    colour_image(tmp_path / "pictures" / "3.png", (255, 255, 255))
    found = check(tmp_path / "index", every=True)
    assert found.pictures == 3
    assert ["1.png" in found.problems[0].what, "3.png" in found.problems[1].what] == [True, True]
    assert found.problems[0].fix == "put it back, or build the index again"
