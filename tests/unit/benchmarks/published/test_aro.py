"""ARO on cases whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from components.benchmarks.published import find_published
from components.benchmarks.published.aro import FEWEST
from components.benchmarks.scoring.benchmark import Scores
from components.benchmarks.scoring.bootstrap import interval
from tests.support.toy_context import toy_context

TABLE = {"red": (1, 0, 0), "green": (0, 1, 0), "rosy": (1, 0, 0)}
RED, GREEN = (0, 0, 4, 8), (4, 0, 4, 8)
"""Boxes of the picture's two halves."""


def _case(true: str, false: str, box: tuple[int, ...], **label: Any) -> dict[str, Any]:
    keys = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
    return {
        "image_id": "1",
        "image_path": "1.png",
        **dict(zip(keys, box, strict=True)),
        "true_caption": true,
        "false_caption": false,
        **label,
    }


def _write(folder: Path, name: str, cases: list[dict[str, Any]]) -> None:
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    pixels[:, :4, 0] = pixels[:, 4:, 1] = 255
    (folder / "images").mkdir()
    Image.fromarray(pixels).save(folder / "images" / "1.png")
    (folder / f"visual_genome_{name}.json").write_text(json.dumps(cases))


def _value(scores: Scores, name: str) -> float:
    """The metric as it is reported."""
    return interval(scores.values[name], 1, 0, scores.strata.get(name)).value


def _relations() -> list[dict[str, Any]]:
    """Riding: 3 of 3; holding: 0 of 1, the box is the other half; near, which is left out: 0 of 1, a tie."""
    return [
        *[_case("red", "green", RED, relation_name="riding", predicate="riding")] * 2,
        _case("green", "red", GREEN, relation_name="riding"),
        _case("red", "green", GREEN, relation_name="holding"),
        _case("red", "rosy", RED, relation_name="near"),
    ]


def test_relations_by_hand(tmp_path: Path) -> None:
    _write(tmp_path, "relation", _relations())
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    scores = find_published("vg_relation").score(context)
    assert _value(scores, "vg_relation/macro_accuracy") == pytest.approx(1 / 2)
    assert _value(scores, "vg_relation/macro_accuracy_all") == pytest.approx(1 / 3)
    assert _value(scores, "vg_relation/micro_accuracy") == pytest.approx(3 / 5)
    assert context.notes == ["visual_genome_relation.json: 5 found, 23,937 published"]
    counts = {name: len(found) for name, found in scores.pictures.items()}
    assert counts == {name: len(found) for name, found in scores.values.items()}


def test_attribute_pairs_need_25_cases_and_their_order_counts(tmp_path: Path) -> None:
    many, few = {"attributes": ["red", "big"]}, {"attributes": ["big", "red"]}
    wrong = _case("red", "green", GREEN, **many)
    cases = [*[_case("red", "green", RED, **many)] * (FEWEST - 1), wrong]
    cases += [_case("red", "rosy", RED, **few)] * (FEWEST - 1)
    _write(tmp_path, "attribution", cases)
    scores = find_published("vg_attribution").score(toy_context(tmp_path, TABLE, allow_partial=True))
    assert _value(scores, "vg_attribution/macro_accuracy") == pytest.approx(24 / 25)
    assert _value(scores, "vg_attribution/macro_accuracy_all") == pytest.approx(12 / 25)
    assert _value(scores, "vg_attribution/micro_accuracy") == pytest.approx(24 / 49)


def test_without_a_case_that_counts_the_headline_is_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "relation", _relations()[-1:])
    scores = find_published("vg_relation").score(toy_context(tmp_path, TABLE, allow_partial=True))
    assert set(scores.values) == {"vg_relation/macro_accuracy_all", "vg_relation/micro_accuracy"}
