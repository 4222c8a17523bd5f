"""SugarCrepe on rows whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from components.benchmarks.published import find_published
from components.benchmarks.published.sugar_crepe import TYPES
from components.core.errors import InputError
from tests.support.toy_context import colour_image, toy_context

TABLE = {"red": (1, 0, 0), "green": (0, 1, 0), "rosy": (1, 0, 0)}
RIGHT = {"filename": "a.png", "caption": "red", "negative_caption": "green"}
TIE = {"filename": "a.png", "caption": "red", "negative_caption": "rosy"}


def _write(folder: Path) -> None:
    """Every subset holds a right row and a tie; that of swapped objects two right ones more."""
    for subsets in TYPES.values():
        for subset in subsets:
            rows = {"0": RIGHT, "2": TIE}
            rows |= {"107": RIGHT, "109": RIGHT} if subset == "swap_obj" else {}
            (folder / f"{subset}.json").write_text(json.dumps(rows))
    colour_image(folder / "images" / "a.png", (255, 0, 0))


def test_subsets_and_types_by_hand(tmp_path: Path) -> None:
    _write(tmp_path)
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    scores = find_published("sugar_crepe").score(context)
    assert scores.values["sugar_crepe/add_att/accuracy"].tolist() == [1, 0]
    assert scores.values["sugar_crepe/swap_obj/accuracy"].tolist() == [1, 0, 1, 1]
    swap, groups = scores.values["sugar_crepe/swap/accuracy"], scores.strata["sugar_crepe/swap/accuracy"]
    assert [swap[groups == group].mean() for group in np.unique(groups)] == [3 / 4, 1 / 2]
    assert np.unique(scores.strata["sugar_crepe/replace/accuracy"]).tolist() == [0, 1, 2]
    assert len(scores.values) == 7 + 3
    assert scores.pictures["sugar_crepe/swap/accuracy"].tolist() == [0] * len(swap)
    assert scores.pictures.keys() == scores.values.keys()
    assert "swap_obj.json: 4 found, 245 published" in context.notes
    declared = find_published("sugar_crepe")
    assert all(declared.metric(name).name == "accuracy" for name in scores.values)


def test_other_formats_are_refused(tmp_path: Path) -> None:
    _write(tmp_path)
    benchmark = find_published("sugar_crepe")
    with pytest.raises(InputError, match=r"replace_obj.json: 2 found, 1,652 published"):
        benchmark.score(toy_context(tmp_path, TABLE))
    (tmp_path / "replace_obj.json").write_text(json.dumps({"0": RIGHT, "1": {"caption": "red"}}))
    with pytest.raises(InputError, match=r"replace_obj.json: 1 rows lack filename .*row 1"):
        benchmark.score(toy_context(tmp_path, TABLE))
    (tmp_path / "replace_obj.json").write_text("{")
    with pytest.raises(InputError, match=r"replace_obj.json is damaged"):
        benchmark.score(toy_context(tmp_path, TABLE))


def test_missing_files_are_listed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"add_att.json \(692 rows, under 1 MB, licence: MIT.*images \(COCO"):
        find_published("sugar_crepe").check_files(tmp_path)
