"""COCO-P and COCO-PE on pairs whose rankings are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.benchmarks.published import find_published
from components.core.system.errors import InputError
from tests.support.toy_context import colour_image, toy_context

TABLE = {"red": (1, 0, 0), "scarlet": (0.9, 0.3, 0.1), "moss": (0.1, 1, 0.2), "blue": (0, 0, 1)}
ROWS = [
    {"image": "val2017/000000000001.png", "query": "red", "paraphrase": "scarlet"},
    {"image": "000000000002.png", "caption": "moss", "paraphrase": "blue"},
]
"""The first paraphrase ranks the images as its query does, the second one does not."""


def _write(folder: Path) -> None:
    (folder / "coco_p.json").write_text(json.dumps(ROWS))
    for number, colour in enumerate([(255, 0, 0), (0, 255, 0), (0, 0, 255)], start=1):
        colour_image(folder / "val2017" / f"{number:012d}.png", colour)
    colour_image(folder / "unlabeled2017" / "000000000004.png", (230, 80, 25))


def test_both_galleries_by_hand(tmp_path: Path) -> None:
    """Red ties on green and blue, which go by name: 1 2 3; scarlet 1 2 3. Moss 2 3 1, blue 3 1 2."""
    _write(tmp_path)
    context = toy_context(tmp_path, TABLE, allow_partial=True, ks=(1, 2))
    scores = find_published("coco_p").score(context)
    named = {name.removeprefix("coco_p/"): found.tolist() for name, found in scores.values.items()}
    assert named["ao_at_1"] == [1, 0]
    assert named["ao_at_2"] == [1, pytest.approx((0 + 1 / 2) / 2)]
    assert named["js_at_2"] == [1, pytest.approx(1 / 3)]
    assert named["query_recall_at_1"] == [1, 1]
    assert named["paraphrase_recall_at_1"] == [1, 0]
    assert "ao_at_10" not in named, "the gallery has three images"
    assert context.notes == ["coco_p.json: 2 found, 4,155 published", "val2017: images: 3 found, 5,000 published"]
    # The large gallery has an orange image more, which is the first for scarlet, and the second for red.
    values = find_published("coco_pe").score(context).values
    assert values["coco_pe/ao_at_1"].tolist()[0] == 0
    assert values["coco_pe/js_at_2"].tolist()[0] == 1
    assert "unlabeled2017: images: 1 found, 123,403 published" in context.notes


def test_other_formats_are_refused(tmp_path: Path) -> None:
    _write(tmp_path)
    for rows, partial, message in (
        ([*ROWS, {"image_id": 3, "query": "blue"}], False, r"1 rows lack image or query or paraphrase \(row 2,"),
        ([{"image_id": 9, "query": "blue", "paraphrase": "sky"}], True,
         r"row 0 names image '000000000009.jpg', which the gallery lacks"),
    ):  # fmt: skip
        (tmp_path / "coco_p.json").write_text(json.dumps(rows))
        with pytest.raises(InputError, match=message):
            find_published("coco_p").score(toy_context(tmp_path, TABLE, allow_partial=partial))
