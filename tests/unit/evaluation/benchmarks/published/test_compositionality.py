"""SugarCrepe, SugarCrepe++, ARO and CC-Neg on a handful of rows whose answers are computed by hand."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from components.core.system.errors import InputError
from components.data.test_sets.files import released_test_rows
from components.data.test_sets.readers import cc_neg
from components.data.test_sets.readers.sugar_crepe import SUBSETS, TEST_SETS, TYPES
from components.evaluation.benchmarks.published import find_published
from components.evaluation.benchmarks.published.aro import FEWEST
from components.evaluation.benchmarks.published.cc_neg import convert
from components.evaluation.scoring.benchmark import Scores
from components.evaluation.scoring.bootstrap import interval
from components.evaluation.scoring.protocols.choices import composite_score
from tests.support.toy_context import colour_image, toy_context, wide_image

TABLE = {"red": (1, 0, 0), "green": (0, 1, 0), "rosy": (1, 0, 0)}
RIGHT = {"filename": "a.png", "caption": "red", "negative_caption": "green"}
TIE = {"filename": "a.png", "caption": "red", "negative_caption": "rosy"}


def _write(folder: Path, rows: Any, subsets: Iterable[str] = SUBSETS) -> None:
    for subset in subsets:
        (folder / f"{subset}.json").write_text(json.dumps(rows))
    for name, colour in (("a", (255, 0, 0)), ("b", (0, 255, 0)), ("c", (0, 0, 255))):
        colour_image(folder / "images" / f"{name}.png", colour)


def test_subsets_and_types_by_hand(tmp_path: Path) -> None:
    """Every subset has a right row and a tie; that of swapped objects two right ones more."""
    rows = {"0": RIGHT, "2": TIE}
    _write(tmp_path, rows, [subset for subsets in TYPES.values() for subset in subsets])
    _write(tmp_path, rows | {"107": RIGHT, "109": RIGHT}, ["swap_obj"])
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
    assert all(find_published("sugar_crepe").metric(name).name == "accuracy" for name in scores.values)


PP_TABLE = {"red": (1, 0, 0), "crimson": (0.9, 0.1, 0), "green": (0, 1, 0), "leaf": (0.1, 0.9, 0)}
PP_ROWS = [
    {"id": 0, "filename": "a.png", "caption": "red", "caption2": "crimson", "negative_caption": "green"},
    {"id": 1, "filename": "a.png", "caption": "red", "caption2": "green", "negative_caption": "leaf"},
    {"id": 2, "filename": "a.png", "caption": "red", "caption2": "red", "negative_caption": "red"},
]
"""Right; its second caption is the wrong one; a tie, which is a failure."""


def test_text_and_image_parts_by_hand(tmp_path: Path) -> None:
    _write(tmp_path, PP_ROWS)
    context = toy_context(tmp_path, PP_TABLE, allow_partial=True)
    for name in ("sugar_crepe_pp_text", "sugar_crepe_pp", "sugar_crepe_pp_semclip"):
        scores = find_published(name).score(context)
        assert scores.pictures.keys() == scores.values.keys()
        assert all(not found.any() for found in scores.pictures.values())
        values = {metric.removeprefix(f"{name}/"): found.tolist() for metric, found in scores.values.items()}
        if name == "sugar_crepe_pp_text":
            assert [values[f"{subset}/tot"] for subset in SUBSETS] == [[1, 0, 0]] * 5
        elif name == "sugar_crepe_pp":
            parts = [values[f"swap_obj/{part}"] for part in ("i_p1_n", "i_p2_n", "itt")]
            assert parts == [[1, 1, 0], [1, 0, 0], [1, 0, 0]]
    assert "swap_obj.json: 3 found, 245 published" in context.notes


def test_semclips_numbers_by_hand(tmp_path: Path) -> None:
    name, others = "sugar_crepe_pp_semclip", list(SUBSETS)[1:]
    right = {**PP_ROWS[1], "filename": "b.png", "caption": "green", "negative_caption": "red"}
    _write(tmp_path, [PP_ROWS[0], right], ["swap_obj"])
    # The blue image is as far from both captions: nothing is right, and an accuracy below chance counts as 0.
    for rows, over_negation, composite in (([{**PP_ROWS[0], "filename": "c.png"}], [1, 1, 0, 0, 0, 0], 2 / 9),
                                           ([right], [1] * 6, 5 / 9)):  # fmt: skip
        _write(tmp_path, rows, others)
        found = find_published(name).score(toy_context(tmp_path, PP_TABLE, allow_partial=True))
        for part in ("original", "paraphrase"):
            assert found.values[f"{name}/{part}/recall_at_1"].tolist() == [1, 1, 0, 0, 0, 0]
        assert found.values[f"{name}/original_over_negation"].tolist() == over_negation
        assert found.scalars[f"{name}/composite_score"] == pytest.approx(composite)


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
    _write(tmp_path, [])
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


def test_semclips_released_file_of_too_few_or_other_rows_is_refused(tmp_path: Path) -> None:
    _semclip_file(tmp_path, [("a.png", "red", "red", "green")] * 9)
    for partial, message in ((False, r"9 found, 4,757 published"), (True, r"has 9 rows, of which a tenth is tested")):
        with pytest.raises(InputError, match=message):
            find_published("sugar_crepe_pp_semclip_released").score(toy_context(tmp_path, {}, allow_partial=partial))
    (tmp_path / "sugarcrepe_pp_paraphrased.csv").write_text("filename,caption\na.png,red\n")
    with pytest.raises(InputError, match=r"1 rows lack filename or caption or paraphrased or negation"):
        find_published("sugar_crepe_pp_semclip_released").score(toy_context(tmp_path, {}))


ARO_TABLE = {"red": (1, 0, 0), "green": (0, 1, 0), "rosy": (1, 0, 0)}
LEFT, OTHER_HALF = (0, 0, 4, 8), (4, 0, 4, 8)
"""Boxes of the picture's two halves."""


def _case(true: str, false: str, box: tuple[int, ...], **label: Any) -> dict[str, Any]:
    found = dict(zip(("bbox_x", "bbox_y", "bbox_w", "bbox_h"), box, strict=True))
    return {"image_id": "1", "image_path": "1.png", "true_caption": true, "false_caption": false, **found, **label}


def _write_aro(folder: Path, name: str, cases: list[dict[str, Any]]) -> None:
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
        *[_case("red", "green", LEFT, relation_name="riding", predicate="riding")] * 2,
        _case("green", "red", OTHER_HALF, relation_name="riding"),
        _case("red", "green", OTHER_HALF, relation_name="holding"),
        _case("red", "rosy", LEFT, relation_name="near"),
    ]
    _write_aro(tmp_path, "relation", cases)
    context = toy_context(tmp_path, ARO_TABLE, allow_partial=True)
    scores = find_published("vg_relation").score(context)
    wanted = {"macro_accuracy": 1 / 2, "macro_accuracy_all": 1 / 3, "micro_accuracy": 3 / 5}
    assert _values(scores) == pytest.approx(wanted)
    assert context.notes == ["visual_genome_relation.json: 5 found, 23,937 published"]
    counts = {name: len(found) for name, found in scores.pictures.items()}
    assert counts == {name: len(found) for name, found in scores.values.items()}
    _write_aro(tmp_path, "relation", cases[-1:])
    scores = find_published("vg_relation").score(toy_context(tmp_path, ARO_TABLE, allow_partial=True))
    assert _values(scores).keys() == {"macro_accuracy_all", "micro_accuracy"}, "no case counts"


def test_attribute_pairs_need_25_cases_and_their_order_counts(tmp_path: Path) -> None:
    many, few = {"attributes": ["red", "big"]}, {"attributes": ["big", "red"]}
    cases = [*[_case("red", "green", LEFT, **many)] * (FEWEST - 1), _case("red", "green", OTHER_HALF, **many)]
    cases += [_case("red", "rosy", LEFT, **few)] * (FEWEST - 1)
    _write_aro(tmp_path, "attribution", cases)
    scores = find_published("vg_attribution").score(toy_context(tmp_path, ARO_TABLE, allow_partial=True))
    wanted = {"macro_accuracy": 24 / 25, "macro_accuracy_all": 12 / 25, "micro_accuracy": 24 / 49}
    assert _values(scores) == pytest.approx(wanted)


CC_NEG_TEXTS = {"red": (1, 0, 0), "no red": (0, 1, 0), "rosy": (1, 0, 0), "crimson": (0.9, 0.1, 0), "leaf": (0, 1, 0)}
AUTHORS = "/workspace/datasets/cc3m/ccneg_images/cc3m_subset_images_extracted_final"


def _annotation(caption: str, negated: str) -> dict[str, Any]:
    return {"json": {"caption": caption, "url": "x"}, "sop_data": {"negative-prompt": negated, "subject": ["red"]}}


def test_con_clip_by_hand_from_the_authors_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable row outside of the tested ones, a right row with a comma, a tie, a wrong one."""
    texts = [("red", "green"), ("red", "no, red"), ("red", "rosy"), ("leaf", "red")]
    paths = [f"{AUTHORS}/{name}.jpg" for name in ("gone", "a", "a", "a")]
    annotations = [_annotation(*pair) for pair in texts]
    torch.save({"image_paths": paths, "annotations": annotations, "num_ops": {1: [0]}}, tmp_path / "published.pt")
    assert convert(tmp_path / "published.pt", tmp_path / cc_neg.TABLE) == 4
    colour_image(tmp_path / cc_neg.IMAGES / "a.jpg", (255, 0, 0))
    monkeypatch.setattr(cc_neg, "TESTED", 3)
    context = toy_context(tmp_path, CC_NEG_TEXTS, allow_partial=True)
    scores = find_published("cc_neg").score(context)
    assert scores.values["cc_neg/accuracy"].tolist() == [1, 1, 0]
    assert context.notes == ["cc_neg.parquet: 4 found, 228,246 published"]
    assert "no red" in context.under_test.encoder.asked  # type: ignore[attr-defined]


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


def test_pickles_that_could_run_code_and_other_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"image_paths": [], "annotations": [_Bomb()]}, tmp_path / "bomb.pt")
    torch.save({"image_paths": ["a", "b"], "annotations": [_annotation("a", "b")]}, tmp_path / "ragged.pt")
    for name, message in (
        ("bomb", "holds more than plain data"),
        ("ragged", "does not have the layout"),
        ("gone", r"gone.pt is missing or damaged"),
    ):
        with pytest.raises(InputError, match=message):
            convert(tmp_path / f"{name}.pt", tmp_path / "out.parquet")
    assert not (tmp_path / "ran").exists()
    pq.write_table(pa.table({"image_path": ["a"], "caption": ["b"]}), tmp_path / cc_neg.TABLE)
    with pytest.raises(InputError, match=r"lacks the column 'negated'.*published.cc_neg"):
        find_published("cc_neg").score(toy_context(tmp_path, CC_NEG_TEXTS))
    (tmp_path / cc_neg.TABLE).write_bytes(b"PK")
    with pytest.raises(InputError, match="is not a Parquet file"):
        find_published("cc_neg").score(toy_context(tmp_path, CC_NEG_TEXTS))


def _write_csv(folder: Path, rows: list[tuple[str, ...]]) -> None:
    with (folder / cc_neg.CSV).open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("image_number", "caption", "negation", "paraphrased"), *rows])


def test_semclip_on_cc_neg_by_hand(tmp_path: Path) -> None:
    """Of 29 rows two are tested, those that the shuffle puts last; they have a red and a green picture."""
    first, second = released_test_rows(29).tolist()
    rows = [("1", "train", "train", "train")] * 29
    rows[first] = ("3", "red", "no red", "crimson")
    rows[second] = ("12345", "leaf", "no red", "red")
    _write_csv(tmp_path, rows)
    colour_image(tmp_path / cc_neg.IMAGES / "000000003.jpg", (255, 0, 0))
    colour_image(tmp_path / cc_neg.IMAGES / "000012345.jpg", (0, 255, 0))
    context = toy_context(tmp_path, CC_NEG_TEXTS, allow_partial=True)
    scores = find_published("cc_neg_semclip").score(context)
    named = {name.removeprefix("cc_neg_semclip/"): found.tolist() for name, found in scores.values.items()}
    assert named["original/recall_at_1"] == [1, 1]
    assert named["paraphrase/recall_at_1"] == [1, 0]
    assert named["paraphrase/recall_at_3"] == [1, 1]
    assert named["original_over_negation"] == [1, 0], "the second is a tie"
    assert scores.scalars == {"cc_neg_semclip/composite_score": pytest.approx((1 + 0.5 + 0) / 3)}
    assert context.notes == ["ccneg_paraphrased.csv: 29 found, 228,246 published"]


def test_semclip_sees_all_of_a_wide_picture(tmp_path: Path) -> None:
    """Its images are squashed (the released src/dataset.py), so the red sides outweigh the green middle."""
    _write_csv(tmp_path, [("1", "red", "leaf", "red")] * 10)
    _semclip_file(tmp_path, [("000000001.jpg", "red", "red", "leaf")] * 10)
    for name, folder in (("cc_neg_semclip", cc_neg.IMAGES), ("sugar_crepe_pp_semclip_released", "images")):
        wide_image(tmp_path / folder / "000000001.jpg", middle=(0, 255, 0), sides=(255, 0, 0))
        scores = find_published(name).score(toy_context(tmp_path, CC_NEG_TEXTS, allow_partial=True))
        assert scores.values[f"{name}/original_over_negation"].tolist() == [1], name


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_composite_is_a_share_and_chance_over_negations_adds_nothing(a: float, b: float, c: float) -> None:
    assert 0 <= composite_score(a, b, c) <= 1
    assert composite_score(a, b, min(c, 0.5)) == pytest.approx((a + b) / 3)
    assert composite_score(1, 1, 1) == 1
