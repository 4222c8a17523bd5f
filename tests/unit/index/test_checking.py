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
from components.index.building import build
from components.index.checking import check
from components.index.facts import FACTS, read_facts, rows_file, structure_file, vectors_file, write_facts
from components.index.image_index import ImageIndex
from components.index.search import EFFORTS, Found, search_exact
from components.index.sources import find_source
from components.index.tuning import measured, read_queries
from components.registry.encoder_lookup import encoder_under_test
from tests.support.index_making import make_index, other, toy
from tests.support.toy_context import colour_image


@pytest.fixture(scope="module")
def approximate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("approximate")
    make_index(folder, 1000, "ivf_pq")
    return folder / "index"


def flipped(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def with_row(folder: Path, row: np.ndarray) -> None:
    path = vectors_file(folder, 0)
    array = np.load(path)
    array[7] = row
    np.save(path, array)


def with_rows_twice(folder: Path) -> None:
    facts = read_facts(folder)
    for file in (vectors_file, rows_file):
        shutil.copy(file(folder, 0), file(folder, 1))
    exact = {"segments": facts.segments * 2, "kind": "exact", "structure": None, "recalls": ()}
    write_facts(folder, facts.model_copy(update=exact))


def with_recall(folder: Path, recall: float) -> None:
    facts = read_facts(folder)
    low = facts.recalls[0].model_copy(update={"recall_at_10": recall, "encoder": "other"})
    write_facts(folder, facts.model_copy(update={"recalls": (*facts.recalls, low)}))


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
    "rows twice": (with_rows_twice, "", "1000 rows have the image id of another row"),
    "recall": (lambda folder: with_recall(folder, 0.9), "", "of text queries of 'other' is 0.900, below 0.95"),
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


def test_pictures_that_moved_or_changed_are_named(tiny_encoder: Encoder, tmp_path: Path) -> None:
    paths = [tmp_path / "pictures" / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        colour_image(path, (number, 0, 0))
    source = find_source("folder").open(str(tmp_path / "pictures"), encoder_under_test("tiny", tiny_encoder))
    build(tmp_path / "index", source)
    index = ImageIndex.open(tmp_path / "index")
    assert check(tmp_path / "index").pictures == 3
    paths[1].unlink()
    paths[2].write_bytes(paths[2].read_bytes()[:-1] + b"?")
    found = check(tmp_path / "index", every=True)
    assert found.pictures == 1
    for row, problem in zip((1, 2), found.problems, strict=True):
        refusal = f"{row}.png (row {row}) is missing, or is not the picture that was indexed"
        assert f"{problem.what}: {problem.fix}".endswith(f"{refusal}: put it back, or build the index again")
        with pytest.raises(InputError, match=re.escape(refusal)):
            index.picture(row)


def test_the_smallest_sufficient_effort_is_kept(approximate: Path) -> None:
    index = ImageIndex.open(approximate)
    index.facts = index.facts.model_copy(update={"effort": 0, "recalls": ()})
    for sufficient, encoder, tried, recalls in (
        (EFFORTS[2], "toy", EFFORTS[:3], {"toy": 1.0}),
        (EFFORTS[0], "easier", EFFORTS[2:3], {"toy": 1.0, "easier": 1.0}),
        (1 << 30, "hopeless", EFFORTS[2:], {"toy": 1.0, "easier": 1.0, "hopeless": 0.5}),
        (1, "hopeless", EFFORTS[-1:], {"toy": 1.0, "easier": 1.0, "hopeless": 1.0}),
    ):
        efforts = list[int]()

        def search(queries: Any, k: int, effort: int, rows: Any = None, enough: int = sufficient) -> Found:
            efforts.append(effort)  # noqa: B023
            found = search_exact(index.vectors, queries, k)
            found.rows[:, k // 2 if effort < enough else k :] = -1
            return found

        index.search_unit = search  # type: ignore[method-assign]
        index.facts = measured(index, other(toy(encoder), sha256=encoder))
        assert tuple(efforts) == tried, encoder
        assert index.facts.effort == tried[-1]
        assert {recall.encoder: recall.recall_at_10 for recall in index.facts.recalls} == recalls


def test_queries_are_lines_of_text(tmp_path: Path) -> None:
    path = tmp_path / "queries.txt"
    path.write_text("\ufeffa dog\n\n a cat \r\na dog\n", "utf-8")
    assert read_queries(path) == ["a dog", "a cat"]
    path.write_text("\n".join(map(str, range(5000))))
    assert len(read_queries(path)) == 1000
    for raw in (b"\xff\xfe", b"\n \n"):
        path.write_bytes(raw)
        with pytest.raises(InputError, match=r"--queries .*queries\.txt"):
            read_queries(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_queries(tmp_path / "none.txt")
