"""Recall is measured on texts, and the effort is the least that is enough for all encoders that were measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core.errors import InputError
from components.index.building import build, remeasure
from components.index.exact_search import Found, search_exact
from components.index.facts import read_facts
from components.index.image_index import ImageIndex
from components.index.kinds import find_kind
from components.index.tuning import measured, needs_queries, read_queries
from tests.support.index_making import OTHER_TOWER, drawn, make_index, opened, other, toy, write_vectors


class _Coarse:
    """Finds the best as soon as the effort is enough for the encoder whose texts are asked; else rows of no use."""

    def __init__(self, index: ImageIndex, enough: int) -> None:
        self._index, self._enough, self.asked = index, enough, list[int]()

    def search(self, queries: Any, k: int, effort: int, rows: Any = None) -> Found:
        self.asked.append(effort)
        found = search_exact(self._index.vectors, queries, k)
        if effort < self._enough:
            found.rows[:, k // 2 :] = -1
        return found


def measured_with(index: ImageIndex, enough: int, name: str = "toy") -> tuple[Any, list[int]]:
    index.searcher = coarse = _Coarse(index, enough)
    return measured(index, other(toy(name), sha256=name)), coarse.asked


def test_the_least_effort_that_is_enough_is_kept(tmp_path: Path) -> None:
    make_index(tmp_path, 40, "usearch")
    index = ImageIndex.open(tmp_path / "index")
    efforts = find_kind("usearch").efforts
    index.facts = index.facts.model_copy(update={"effort": 0, "recalls": ()})
    facts, asked = measured_with(index, efforts[2])
    assert asked == list(efforts[:3])
    assert (facts.effort, facts.recalls[0].recall_at_10, facts.recalls[0].queries) == (efforts[2], 1.0, 40)
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


def test_another_encoder_of_the_tower_is_measured_and_kept(tmp_path: Path) -> None:
    make_index(tmp_path, 40, "usearch")
    folder = tmp_path / "index"
    remeasure(folder, other(toy("better text"), sha256="better"), ["a dog", "two cats"])
    told = [(one.encoder, one.queries, one.kind) for one in read_facts(folder).recalls]
    assert told == [("toy", 40, "usearch"), ("better text", 2, "usearch")]
    with pytest.raises(InputError, match="encoder 'stranger' has image tower"):
        remeasure(folder, toy("stranger", OTHER_TOWER))


def test_exact_search_is_not_measured(tmp_path: Path) -> None:
    make_index(tmp_path, 40)
    before = read_facts(tmp_path / "index")
    assert not needs_queries("exact")
    assert remeasure(tmp_path / "index", toy()) == before
    assert not before.recalls


def test_an_encoder_that_gives_no_numbers_is_refused(tmp_path: Path) -> None:
    write_vectors(tmp_path / "vectors", 0, drawn(40))
    broken = toy()
    broken.encoder.table = {"a dog": [np.nan] * 8}  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="gives 'a dog' a non-finite feature"):
        build(tmp_path / "index", opened(tmp_path / "vectors"), "usearch", broken, ["a dog"])


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
