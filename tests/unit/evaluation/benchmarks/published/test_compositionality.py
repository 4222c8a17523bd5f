"""SugarCrepe, SugarCrepe++, ARO, CC-Neg and NegBench on a handful of rows whose answers are computed by hand."""

from __future__ import annotations

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
from components.data.test_sets.readers.negbench import CAPTIONS, OPTIONS, PICTURES, QUESTIONS
from components.data.test_sets.readers.sugar_crepe import CSV, SUBSETS, TEST_SETS, TYPES
from components.evaluation.benchmarks.published.aro import FEWEST
from components.evaluation.benchmarks.published.cc_neg import convert
from components.evaluation.scoring.intervals import mean_interval
from components.evaluation.scoring.protocols.choices import composite_score
from tests.support.published import ScoredBenchmark, csv_text, refused, scored
from tests.support.toy_context import wide_image
from tests.unit.data.test_sets.writing import write_files

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
TABLE = {
    "red": (1, 0, 0), "rosy": (1, 0, 0), "crimson": (0.9, 0.1, 0), "green": (0, 1, 0), "leaf": (0.1, 0.9, 0),
    "no red": (0, 1, 0),
}  # fmt: skip
RIGHT = {"filename": "a.png", "caption": "red", "negative_caption": "green"}
TIE = {"filename": "a.png", "caption": "red", "negative_caption": "rosy"}


@pytest.fixture
def crepe(tmp_path: Path) -> Path:
    """A red, a green and a blue picture."""
    write_files(tmp_path / "images", {"a.png": RED, "b.png": GREEN, "c.png": BLUE})
    return tmp_path


def test_subsets_and_types_by_hand(crepe: Path) -> None:
    """Every subset has a right row and a tie; that of swapped objects two right ones more."""
    rows = {"0": RIGHT, "2": TIE}
    write_files(crepe, {f"{subset}.json": rows for subsets in TYPES.values() for subset in subsets})
    write_files(crepe, {"swap_obj.json": rows | {"107": RIGHT, "109": RIGHT}})
    found = scored("sugar_crepe", crepe, TABLE)
    assert found.values["add_att/accuracy"] == [1, 0]
    assert found.values["swap_obj/accuracy"] == [1, 0, 1, 1]
    swap, groups = np.array(found.values["swap/accuracy"]), np.array(found.strata["swap/accuracy"])
    assert [swap[groups == group].mean() for group in np.unique(groups)] == [3 / 4, 1 / 2]
    assert np.unique(found.strata["replace/accuracy"]).tolist() == [0, 1, 2]
    assert len(found.values) == 7 + 3
    assert found.pictures["swap/accuracy"] == [0] * len(swap)
    assert found.pictures.keys() == found.values.keys()
    assert "swap_obj.json: 4 found, 245 published" in found.notes


PP_ROWS = [
    {"id": 0, "filename": "a.png", "caption": "red", "caption2": "crimson", "negative_caption": "green"},
    {"id": 1, "filename": "a.png", "caption": "red", "caption2": "green", "negative_caption": "leaf"},
    {"id": 2, "filename": "a.png", "caption": "red", "caption2": "red", "negative_caption": "red"},
]
"""Right; its second caption is the wrong one; a tie, which is a failure."""


def test_text_and_image_parts_and_semclips_numbers_by_hand(crepe: Path) -> None:
    write_files(crepe, {f"{subset}.json": PP_ROWS for subset in SUBSETS})
    text, image, pooled = (scored(f"sugar_crepe_pp{kind}", crepe, TABLE) for kind in ("_text", "", "_semclip"))
    for found in (text, image, pooled):
        assert found.pictures.keys() == found.values.keys()
        assert not any(any(pictures) for pictures in found.pictures.values())
        assert "swap_obj.json: 3 found, 245 published" in found.notes
    assert [text.values[f"{subset}/tot"] for subset in SUBSETS] == [[1, 0, 0]] * 5
    parts = [image.values[f"swap_obj/{part}"] for part in ("i_p1_n", "i_p2_n", "itt")]
    assert parts == [[1, 1, 0], [1, 0, 0], [1, 0, 0]]
    right = {**PP_ROWS[1], "filename": "b.png", "caption": "green", "negative_caption": "red"}
    # The blue image is as far from both captions: nothing is right, and an accuracy below chance counts as 0.
    for rows, over_negation, composite in (([{**PP_ROWS[0], "filename": "c.png"}], [1, 1, 0, 0, 0, 0], 2 / 9),
                                           ([right], [1] * 6, 5 / 9)):  # fmt: skip
        write_files(crepe, {f"{subset}.json": rows for subset in SUBSETS} | {"swap_obj.json": [PP_ROWS[0], right]})
        found = scored("sugar_crepe_pp_semclip", crepe, TABLE)
        for part in ("original", "paraphrase"):
            assert found.values[f"{part}/recall_at_1"] == [1, 1, 0, 0, 0, 0]
        assert found.values["original_over_negation"] == over_negation
        assert found.scalars["composite_score"] == pytest.approx(composite)


def _semclip_file(folder: Path, rows: list[tuple[str, ...]], header: str = "filename") -> None:
    """SemCLIP's file of SugarCrepe++, or of CC-Neg, whose pictures have numbers."""
    file = CSV if header == "filename" else cc_neg.CSV
    write_files(folder, {file: csv_text((header, "caption", "paraphrased", "negation"), *rows)})


def test_semclips_rows_are_the_last_tenth_of_pandas_shuffle_and_others_are_refused(crepe: Path, tmp_path: Path) -> None:
    """Only the tested rows have pictures that are there, and texts whose answers are known."""
    rows = [("gone.png", "train", "train", "train")] * 39
    # The released code: DataFrame.sample(frac=1.0, random_state=42), of which the last int(0.1 * rows) are tested.
    first, second, third = pd.DataFrame(rows).sample(frac=1.0, random_state=42).index[-3:].tolist()
    rows[first] = ("a.png", "red", "crimson", "green")
    rows[second] = ("b.png", "leaf", "red", "green")
    rows[third] = ("a.png", "red", "red", "red")
    _semclip_file(crepe, rows)
    found = scored("sugar_crepe_pp_semclip_released", crepe, TABLE)
    assert found.values["original/recall_at_1"] == [1, 1, 0], "a second row of an image is a miss"
    assert found.values["paraphrase/recall_at_1"] == [1, 0, 0]
    assert found.values["original_over_negation"] == [1, 0, 0], "the third is a tie"
    assert found.scalars["composite_score"] == pytest.approx((2 / 3 + 1 / 3 + 0) / 3)
    assert found.notes == ["sugarcrepe_pp_paraphrased.csv: 39 found, 4,757 published"]
    (test_set,) = (one for one in TEST_SETS if one.name == "sugar_crepe_pp_semclip_released")
    texts = ["red", "crimson", "green", "leaf", "red", "green", "red", "red", "red"]
    assert test_set.read(found.context).texts == texts
    name = "sugar_crepe_pp_semclip_released"
    _semclip_file(tmp_path, [("a.png", "red", "red", "green")] * 9)
    refused(name, tmp_path, r"9 found, 4,757 published")
    refused(name, tmp_path, r"has 9 rows, of which a tenth is tested", allow_partial=True)
    write_files(tmp_path, {CSV: "filename,caption\na.png,red\n"})
    refused(name, tmp_path, r"1 rows lack filename or caption or paraphrased or negation")


LEFT, OTHER_HALF = (0, 0, 4, 8), (4, 0, 4, 8)
"""Boxes of the picture's two halves."""


def _case(true: str, false: str, box: tuple[int, ...], **label: Any) -> dict[str, Any]:
    found = dict(zip(("bbox_x", "bbox_y", "bbox_w", "bbox_h"), box, strict=True))
    return {"image_id": "1", "image_path": "1.png", "true_caption": true, "false_caption": false, **found, **label}


def _aro(folder: Path, name: str, cases: list[dict[str, Any]]) -> tuple[ScoredBenchmark, dict[str, float]]:
    """The scores of cases about a picture of a red and a green half, and the metrics as they are reported."""
    pixels = np.zeros((8, 8, 3), dtype=np.uint8)
    pixels[:, :4, 0] = pixels[:, 4:, 1] = 255
    write_files(folder, {f"visual_genome_{name}.json": cases, "images/1.png": RED})
    Image.fromarray(pixels).save(folder / "images" / "1.png")
    found = scored(f"vg_{name}", folder, TABLE)
    strata = {metric: np.array(groups) for metric, groups in found.strata.items()}
    reported = {
        metric: mean_interval(np.array(values), strata.get(metric)).value for metric, values in found.values.items()
    }
    return found, reported


def test_relations_and_attribute_pairs_by_hand(tmp_path: Path) -> None:
    """Riding: 3 of 3; holding: 0 of 1, the box is the other half; near, which is left out: 0 of 1, a tie."""
    cases = [
        *[_case("red", "green", LEFT, relation_name="riding", predicate="riding")] * 2,
        _case("green", "red", OTHER_HALF, relation_name="riding"),
        _case("red", "green", OTHER_HALF, relation_name="holding"),
        _case("red", "rosy", LEFT, relation_name="near"),
    ]
    found, reported = _aro(tmp_path, "relation", cases)
    assert reported == pytest.approx({"macro_accuracy": 1 / 2, "macro_accuracy_all": 1 / 3, "micro_accuracy": 3 / 5})
    assert found.notes == ["visual_genome_relation.json: 5 found, 23,937 published"]
    assert {name: len(rows) for name, rows in found.pictures.items()} == {
        name: len(rows) for name, rows in found.values.items()
    }
    _, reported = _aro(tmp_path, "relation", cases[-1:])
    assert reported.keys() == {"macro_accuracy_all", "micro_accuracy"}, "no case counts"
    many, few = {"attributes": ["red", "big"]}, {"attributes": ["big", "red"]}
    cases = [*[_case("red", "green", LEFT, **many)] * (FEWEST - 1), _case("red", "green", OTHER_HALF, **many)]
    cases += [_case("red", "rosy", LEFT, **few)] * (FEWEST - 1)
    _, reported = _aro(tmp_path, "attribution", cases)
    wanted = {"macro_accuracy": 24 / 25, "macro_accuracy_all": 12 / 25, "micro_accuracy": 24 / 49}
    assert reported == pytest.approx(wanted)


AUTHORS = "/workspace/datasets/cc3m/ccneg_images/cc3m_subset_images_extracted_final"


def _annotation(caption: str, negated: str) -> dict[str, Any]:
    return {"json": {"caption": caption, "url": "x"}, "sop_data": {"negative-prompt": negated, "subject": ["red"]}}


def test_con_clip_by_hand_from_the_authors_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unreadable row outside of the tested ones, a right row with a comma, a tie, a wrong one."""
    texts = [("red", "green"), ("red", "no, red"), ("red", "rosy"), ("green", "red")]
    paths = [f"{AUTHORS}/{name}.jpg" for name in ("gone", "a", "a", "a")]
    annotations = [_annotation(*pair) for pair in texts]
    torch.save({"image_paths": paths, "annotations": annotations, "num_ops": {1: [0]}}, tmp_path / "published.pt")
    assert convert(tmp_path / "published.pt", tmp_path / cc_neg.TABLE) == 4
    write_files(tmp_path, {f"{cc_neg.IMAGES}/a.jpg": RED})
    monkeypatch.setattr(cc_neg, "TESTED", 3)
    found = scored("cc_neg", tmp_path, TABLE)
    assert found.values["accuracy"] == [1, 1, 0]
    assert found.notes == ["cc_neg.parquet: 4 found, 228,246 published"]
    assert "no red" in found.asked


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("ran"),))


def test_pickles_that_run_code_and_other_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    refused("cc_neg", tmp_path, r"lacks the column 'negated'.*published.cc_neg")
    (tmp_path / cc_neg.TABLE).write_bytes(b"PK")
    refused("cc_neg", tmp_path, "is not a Parquet file")


def test_semclip_on_cc_neg_by_hand_sees_all_of_a_wide_picture(tmp_path: Path) -> None:
    """Of 29 rows two are tested, those that the shuffle puts last; they have a red and a green picture."""
    first, second = released_test_rows(29).tolist()
    rows = [("1", "train", "train", "train")] * 29
    rows[first] = ("3", "red", "crimson", "no red")
    rows[second] = ("12345", "green", "red", "no red")
    _semclip_file(tmp_path, rows, "image_number")
    write_files(tmp_path / cc_neg.IMAGES, {"000000003.jpg": RED, "000012345.jpg": GREEN})
    found = scored("cc_neg_semclip", tmp_path, TABLE)
    assert found.values["original/recall_at_1"] == found.values["paraphrase/recall_at_3"] == [1, 1]
    assert found.values["paraphrase/recall_at_1"] == [1, 0]
    assert found.values["original_over_negation"] == [1, 0], "the second is a tie"
    assert found.scalars == {"composite_score": pytest.approx((1 + 0.5 + 0) / 3)}
    assert found.notes == ["ccneg_paraphrased.csv: 29 found, 228,246 published"]
    # Its images are squashed (the released src/dataset.py), so the red sides outweigh the green middle.
    _semclip_file(tmp_path, [("1", "red", "red", "green")] * 10, "image_number")
    _semclip_file(tmp_path, [("000000001.jpg", "red", "red", "green")] * 10)
    for name, folder in (("cc_neg_semclip", cc_neg.IMAGES), ("sugar_crepe_pp_semclip_released", "images")):
        wide_image(tmp_path / folder / "000000001.jpg", middle=GREEN, sides=RED)
        assert scored(name, tmp_path, TABLE).values["original_over_negation"] == [1], name


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_the_composite_is_a_share_and_chance_over_negations_adds_nothing(a: float, b: float, c: float) -> None:
    assert 0 <= composite_score(a, b, c) <= 1
    assert composite_score(a, b, min(c, 0.5)) == pytest.approx((a + b) / 3)
    assert composite_score(1, 1, 1) == 1


NEGBENCH_TABLE = {"red": (1, 0, 0), "leaf": (0, 1, 0), "moss": (0, 1, 0), "more": (9, 8, 0), "match": (0.5, 0, 0)}
MCQ = ("image_path", *OPTIONS, "correct_answer", "correct_answer_template")
QUESTION_ROWS = [
    ("/data/coco/red.png", "red", "leaf", "moss", "moss", "0", "positive"),
    ("elsewhere/leaf.png", "red", "leaf", "more", "more", "0", "negative"),
    ("leaf.png", "leaf", "moss", "red", "more", "0", "hybrid"),
    # Without normalisation the long vector would win: 9 to 0.5.
    ("red.png", "more", "match", "leaf", "moss", "1", "negative"),
]
COLOURS = {"red.png": RED, "leaf.png": GREEN}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_by_hand(tmp_path: Path, name: str) -> None:
    write_files(tmp_path / PICTURES[name], COLOURS)
    write_files(tmp_path, {QUESTIONS[name][0]: csv_text(MCQ, *QUESTION_ROWS)})
    found = scored(name, tmp_path, NEGBENCH_TABLE)
    assert found.values == {
        "accuracy": [1, 0, 1, 1], "kind_positive/accuracy": [1], "kind_negative/accuracy": [0, 1],
        "kind_hybrid/accuracy": [1],
    }  # fmt: skip
    assert found.pictures["accuracy"] == [1, 0, 0, 1]
    assert found.notes == [f"{QUESTIONS[name][0]}: 4 found, {QUESTIONS[name][1]:,} published"]


def test_retrieval_by_hand_a_cell_is_never_run_and_other_answers_are_refused(tmp_path: Path) -> None:
    rows = {"plain": [["red"], ["leaf", "more"]], "negated": [["moss, no red"], ["moss"]]}
    for kind, listed in rows.items():
        cells = [*map(str, listed), f"open('{tmp_path}/run', 'w')"]
        table = zip([f"/x/{name}" for name in (*COLOURS, "red.png")], cells, strict=True)
        write_files(tmp_path, {CAPTIONS[kind]: csv_text(("filepath", "captions"), *table)})
    write_files(tmp_path / "val2017", COLOURS)
    found = scored("negbench_coco_retrieval", tmp_path, NEGBENCH_TABLE | {"moss, no red": (0, 1, 0)}, ks=(1, 2))
    short = found.values
    assert (short["plain/recall_at_1"], short["plain/recall_at_2"]) == ([1, 1, 0], [1, 1, 1])
    assert (short["negated/recall_at_1"], short["negated/recall_at_5"]) == ([0, 1], [1, 1])
    assert not (tmp_path / "run").exists()
    assert "1 rows lack captions (row 2, counted from 0)" in found.notes[0]
    write_files(tmp_path, {QUESTIONS["negbench_coco_mcq"][0]: csv_text(MCQ, ("red.png", *"abcd", "4", "positive"))})
    refused("negbench_coco_mcq", tmp_path, r"rephrased.csv: 1 rows lack answer \(row 0, counted from 0\)")
