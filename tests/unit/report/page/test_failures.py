"""Which queries the failure explorer lists, and that its share of the page is bounded."""

from __future__ import annotations

import json

import numpy as np
import pytest

from components.evaluation.results import Folders
from components.report.page import failures
from components.report.page.failures import build_explorer, choose, explorer_data, overlaps
from components.report.page.retrieved import Lists, Retrieved

QUERIES = [{"query": f"q{row}", "paraphrase": f"p{row}", "tier": "rare", "held_out": "x"} for row in range(4)]
BASE = Lists("base", np.array([[0, 1], [0, 1], [0, 1], [0, 1]]), np.array([[0, 1], [0, 1], [2, 3], [0, 1]]))
TUNED = Lists("tuned", np.array([[0, 1], [0, 1], [0, 1], [4, 5]]), np.array([[0, 1], [0, 6], [0, 1], [4, 5]]))
BOTH = Retrieved([BASE, TUNED], QUERIES, [0, 0, 0, 7])


def test_pairs_of_lists_are_each_encoders_own_and_each_with_the_reference() -> None:
    own_base, own_tuned, across = overlaps([BASE, TUNED], 2)
    assert own_base.tolist() == [1, 1, 0, 1]
    assert own_tuned.tolist() == [1, 0.75, 1, 1]
    assert across.tolist() == [1, 1, 1, 0]


def test_the_most_different_of_every_pair_come_in_turn() -> None:
    assert choose(BOTH, 2, 2) == [2, 1, 3, 0]


def test_queries_and_pictures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(failures, "QUERIES", 2)
        assert choose(BOTH, 2, 2) == [2, 1]
    # Query 2 shows 0, 1, 2 and 3, query 1 also 6; query 3 would bring 4, 5 and its own image 7.
    monkeypatch.setattr(failures, "PICTURES", 5)
    assert choose(BOTH, 2, 2) == [2, 1]
    monkeypatch.setattr(failures, "PICTURES", 1)
    assert choose(BOTH, 2, 2) == [2]


def test_the_script_gets_the_lists_of_the_listed_queries() -> None:
    data = json.loads(json.dumps(explorer_data(BOTH, [2, 3], 2)))
    assert data["encoders"] == ["base", "tuned"]
    assert data["queries"][1] == {"query": "q3", "paraphrase": "p3", "tier": "rare", "gold": 7}
    assert data["lists"]["base"] == {"query": [[0, 1], [0, 1]], "paraphrase": [[2, 3], [0, 1]]}
    assert data["lists"]["tuned"]["query"] == [[0, 1], [4, 5]]


def test_every_image_that_is_shown_has_a_picture(folders: Folders) -> None:
    three = np.array([[0, 1, 2], [2, 3, 1], [3, 2, 1]])
    found = build_explorer(Retrieved([Lists("base", three, three)], QUERIES[:3], [0, 2, 3]), folders)
    assert (found.depth, found.top, found.total) == (3, 3, 3)
    assert set(found.pictures) == {0, 1, 2, 3}
    assert not build_explorer(Retrieved(), folders).rows
