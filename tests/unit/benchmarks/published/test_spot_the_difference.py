"""Spot-the-Difference on pairs of one colour each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.benchmarks.published import find_published
from components.core.system.errors import InputError
from tests.support.toy_context import colour_image, toy_context

RED, GREEN = (255, 0, 0), (0, 255, 0)
ROWS: list[dict[str, Any]] = [
    {"img_id": "256", "sentences": ["it is green now", "nothing has changed"]},
    {"img_id": "7", "sentences": ["it is red now"]},
    {"img_id": "256", "sentences": ["the red is gone"]},
    {"img_id": "8", "sentences": []},
]
"""Two rows of one pair; a pair without a description; pairs 7 and 8 show the same."""
TABLE = {
    **{"it is green now": (0, 1, 0), "the red is gone": (-1, 0, 0)},
    **{"it is red now": (1, 0, 0), "nothing has changed": (0, 0, 1)},
}


def _write(folder: Path) -> None:
    (folder / "annotations").mkdir()
    (folder / "annotations/test.json").write_text(json.dumps(ROWS))
    for image, before, after in [("256", RED, GREEN), ("7", GREEN, RED), ("8", GREEN, RED)]:
        colour_image(folder / f"resized_images/{image}.png", before)
        colour_image(folder / f"resized_images/{image}_2.png", after)


def test_sentences_find_what_image_2_has_over_image_1_and_ties_are_lost(tmp_path: Path) -> None:
    _write(tmp_path)
    context = toy_context(tmp_path, TABLE, allow_partial=True, ks=(1, 2, 3))
    found = find_published("spot_the_difference").score(context).values
    # Sentences pair by pair: green, nothing (ties with all), red is gone; then red, which two pairs show.
    assert found["spot_the_difference/recall_at_1"].tolist() == [1, 0, 1, 0]
    assert found["spot_the_difference/recall_at_2"].tolist() == [1, 0, 1, 1]
    assert found["spot_the_difference/recall_at_3"].tolist() == [1, 1, 1, 1]
    assert context.notes == ["annotations/test.json: 4 found, 1,404 published"]


def test_wrong_and_missing_files(tmp_path: Path) -> None:
    _write(tmp_path)
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    (tmp_path / "resized_images/7_2.png").unlink()
    with pytest.raises(InputError, match=r"7_2.png is missing"):
        find_published("spot_the_difference").score(context)
    (tmp_path / "annotations/test.json").write_text(json.dumps([{"img_id": "256", "sentences": [1, " "]}]))
    with pytest.raises(InputError, match="has no sentences"):
        find_published("spot_the_difference").score(context)
