"""SugarCrepe and SugarCrepe++ on a handful of rows whose answers are computed by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from components.benchmarks.published import find_published
from components.core.system.errors import InputError
from components.test_sets.readers.sugar_crepe import SUBSETS, TEST_SETS, TYPES
from tests.support.toy_context import colour_image, toy_context, wide_image

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


PP_TABLE = {"red": (1, 0, 0), "crimson": (0.9, 0.1, 0), "green": (0, 1, 0), "leaf": (0.1, 0.9, 0)}
PP_ROWS = [
    {"id": 0, "filename": "a.png", "caption": "red", "caption2": "crimson", "negative_caption": "green"},
    {"id": 1, "filename": "a.png", "caption": "red", "caption2": "green", "negative_caption": "leaf"},
    {"id": 2, "filename": "a.png", "caption": "red", "caption2": "red", "negative_caption": "red"},
]
"""Right; its second caption is the wrong one; a tie, which is a failure."""


def _write_pp(folder: Path) -> None:
    for subset in SUBSETS:
        (folder / f"{subset}.json").write_text(json.dumps(PP_ROWS))
    colour_image(folder / "images" / "a.png", (255, 0, 0))


def test_text_and_image_parts_by_hand(tmp_path: Path) -> None:
    _write_pp(tmp_path)
    context = toy_context(tmp_path, PP_TABLE, allow_partial=True)
    tot = find_published("sugar_crepe_pp_text").score(context).values
    assert [tot[f"sugar_crepe_pp_text/{subset}/tot"].tolist() for subset in SUBSETS] == [[1, 0, 0]] * 5
    found = find_published("sugar_crepe_pp").score(context).values
    assert found["sugar_crepe_pp/swap_obj/i_p1_n"].tolist() == [1, 1, 0]
    assert found["sugar_crepe_pp/swap_obj/i_p2_n"].tolist() == [1, 0, 0]
    assert found["sugar_crepe_pp/swap_obj/itt"].tolist() == [1, 0, 0]
    assert "swap_obj.json: 3 found, 245 published" in context.notes
    for name in ("sugar_crepe_pp_text", "sugar_crepe_pp", "sugar_crepe_pp_semclip"):
        scores = find_published(name).score(context)
        assert scores.pictures.keys() == scores.values.keys()
        assert all(not found.any() for found in scores.pictures.values())


def test_semclips_numbers_by_hand(tmp_path: Path) -> None:
    _write_pp(tmp_path)
    # The other subsets' blue image is as far from both captions: nothing there is right.
    for subset in list(SUBSETS)[1:]:
        (tmp_path / f"{subset}.json").write_text(json.dumps([{**PP_ROWS[0], "filename": "c.png"}]))
    colour_image(tmp_path / "images" / "b.png", (0, 255, 0))
    colour_image(tmp_path / "images" / "c.png", (0, 0, 255))
    rows = [PP_ROWS[0], {**PP_ROWS[1], "filename": "b.png", "caption": "green", "negative_caption": "red"}]
    (tmp_path / "swap_obj.json").write_text(json.dumps(rows))
    name = "sugar_crepe_pp_semclip"
    found = find_published(name).score(toy_context(tmp_path, PP_TABLE, allow_partial=True))
    for part in ("original/recall_at_1", "paraphrase/recall_at_1", "original_over_negation"):
        assert found.values[f"{name}/{part}"].tolist() == [1, 1, 0, 0, 0, 0]
    # An accuracy over negations below chance counts as 0.
    assert found.scalars[f"{name}/composite_score"] == pytest.approx((1 / 3 + 1 / 3 + 0) / 3)
    for subset in list(SUBSETS)[1:]:
        (tmp_path / f"{subset}.json").write_text(json.dumps([rows[1]]))
    found = find_published(name).score(toy_context(tmp_path, PP_TABLE, allow_partial=True))
    assert found.values[f"{name}/original/recall_at_1"].tolist() == [1, 1, 0, 0, 0, 0]
    assert found.values[f"{name}/original_over_negation"].tolist() == [1] * 6
    assert found.scalars[f"{name}/composite_score"] == pytest.approx((1 / 3 + 1 / 3 + 1) / 3)


def _semclip_file(folder: Path, rows: list[tuple[str, ...]]) -> None:
    with (folder / "sugarcrepe_pp_paraphrased.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("filename", "caption", "paraphrased", "negation"), *rows])


def test_semclips_released_rows_are_the_last_tenth_of_pandas_shuffle(tmp_path: Path) -> None:
    """Only the tested rows have pictures that are there, and texts whose answers are known."""
    rows = [("gone.png", "train", "train", "train")] * 39
    # The released code: DataFrame.sample(frac=1.0, random_state=42), of which the last int(0.1 * rows) are tested.
    first, second, third = pd.DataFrame(rows).sample(frac=1.0, random_state=42).index[-3:].tolist()
    rows[first] = ("a.png", "red", "crimson", "green")
    rows[second] = ("b.png", "leaf", "red", "green")
    rows[third] = ("a.png", "red", "red", "red")
    _semclip_file(tmp_path, rows)
    colour_image(tmp_path / "images" / "a.png", (255, 0, 0))
    colour_image(tmp_path / "images" / "b.png", (0, 255, 0))
    name = "sugar_crepe_pp_semclip_released"
    context = toy_context(tmp_path, PP_TABLE, allow_partial=True)
    found = find_published(name).score(context)
    assert found.values[f"{name}/original/recall_at_1"].tolist() == [1, 1, 0], "a second row of an image is a miss"
    assert found.values[f"{name}/paraphrase/recall_at_1"].tolist() == [1, 0, 0]
    assert found.values[f"{name}/original_over_negation"].tolist() == [1, 0, 0], "the third is a tie"
    assert found.scalars[f"{name}/composite_score"] == pytest.approx((2 / 3 + 1 / 3 + 0) / 3)
    assert context.notes == ["sugarcrepe_pp_paraphrased.csv: 39 found, 4,757 published"]
    (test_set,) = (one for one in TEST_SETS if one.name == name)
    assert test_set.read(context).texts == ["red", "crimson", "green", "leaf", "red", "green", "red", "red", "red"]


def test_semclips_released_code_sees_all_of_a_wide_picture(tmp_path: Path) -> None:
    """Its images are squashed (the released src/dataset.py), so the red sides outweigh the green middle."""
    _semclip_file(tmp_path, [("a.png", "red", "red", "green")] * 10)
    wide_image(tmp_path / "images" / "a.png", middle=(0, 255, 0), sides=(255, 0, 0))
    name = "sugar_crepe_pp_semclip_released"
    found = find_published(name).score(toy_context(tmp_path, PP_TABLE, allow_partial=True))
    assert found.values[f"{name}/original_over_negation"].tolist() == [1]


def test_semclips_released_file_of_too_few_or_other_rows_is_refused(tmp_path: Path) -> None:
    score = find_published("sugar_crepe_pp_semclip_released").score
    _semclip_file(tmp_path, [("a.png", "red", "red", "green")] * 9)
    with pytest.raises(InputError, match=r"9 found, 4,757 published"):
        score(toy_context(tmp_path, PP_TABLE))
    with pytest.raises(InputError, match=r"has 9 rows, of which a tenth is tested"):
        score(toy_context(tmp_path, PP_TABLE, allow_partial=True))
    (tmp_path / "sugarcrepe_pp_paraphrased.csv").write_text("filename,caption\na.png,red\n")
    with pytest.raises(InputError, match=r"1 rows lack filename or caption or paraphrased or negation"):
        score(toy_context(tmp_path, PP_TABLE))
