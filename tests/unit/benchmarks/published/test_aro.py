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
    found = dict(zip(("bbox_x", "bbox_y", "bbox_w", "bbox_h"), box, strict=True))
    return {"image_id": "1", "image_path": "1.png", "true_caption": true, "false_caption": false, **found, **label}


def _write(folder: Path, name: str, cases: list[dict[str, Any]]) -> None:
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    pixels[:, :4, 0] = pixels[:, 4:, 1] = 255
    (folder / "images").mkdir(exist_ok=True)
    Image.fromarray(pixels).save(folder / "images" / "1.png")
    (folder / f"visual_genome_{name}.json").write_text(json.dumps(cases))


def _values(scores: Scores) -> dict[str, float]:
    """The metrics as they are reported, without the benchmark's name."""
    return {
        name.partition("/")[2]: interval(values, 1, 0, scores.strata.get(name)).value
        for name, values in scores.values.items()
    }


def test_relations_by_hand(tmp_path: Path) -> None:
    """Riding: 3 of 3; holding: 0 of 1, the box is the other half; near, which is left out: 0 of 1, a tie."""
    cases = [
        *[_case("red", "green", RED, relation_name="riding", predicate="riding")] * 2,
        _case("green", "red", GREEN, relation_name="riding"),
        _case("red", "green", GREEN, relation_name="holding"),
        _case("red", "rosy", RED, relation_name="near"),
    ]
    _write(tmp_path, "relation", cases)
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    scores = find_published("vg_relation").score(context)
    wanted = {"macro_accuracy": 1 / 2, "macro_accuracy_all": 1 / 3, "micro_accuracy": 3 / 5}
    assert _values(scores) == pytest.approx(wanted)
    assert context.notes == ["visual_genome_relation.json: 5 found, 23,937 published"]
    counts = {name: len(found) for name, found in scores.pictures.items()}
    assert counts == {name: len(found) for name, found in scores.values.items()}
    _write(tmp_path, "relation", cases[-1:])
    scores = find_published("vg_relation").score(toy_context(tmp_path, TABLE, allow_partial=True))
    assert _values(scores).keys() == {"macro_accuracy_all", "micro_accuracy"}, "no case counts"


def test_attribute_pairs_need_25_cases_and_their_order_counts(tmp_path: Path) -> None:
    many, few = {"attributes": ["red", "big"]}, {"attributes": ["big", "red"]}
    cases = [*[_case("red", "green", RED, **many)] * (FEWEST - 1), _case("red", "green", GREEN, **many)]
    cases += [_case("red", "rosy", RED, **few)] * (FEWEST - 1)
    _write(tmp_path, "attribution", cases)
    scores = find_published("vg_attribution").score(toy_context(tmp_path, TABLE, allow_partial=True))
    wanted = {"macro_accuracy": 24 / 25, "macro_accuracy_all": 12 / 25, "micro_accuracy": 24 / 49}
    assert _values(scores) == pytest.approx(wanted)
