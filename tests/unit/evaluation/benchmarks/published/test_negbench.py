"""NegBench by hand: features are normalised, the first of equals is chosen, and tables are read as published."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.data.test_sets.readers.negbench import CAPTIONS, OPTIONS, PICTURES, QUESTIONS
from tests.support.published import csv_text, refused, scored
from tests.unit.data.test_sets.writing import write_files

TABLE = {"red": (1, 0, 0), "leaf": (0, 1, 0), "moss": (0, 1, 0), "more": (9, 8, 0), "match": (0.5, 0, 0)}
MCQ = ("image_path", *OPTIONS, "correct_answer", "correct_answer_template")
QUESTION_ROWS = [
    ("/data/coco/red.png", "red", "leaf", "moss", "moss", "0", "positive"),
    ("elsewhere/leaf.png", "red", "leaf", "more", "more", "0", "negative"),
    ("leaf.png", "leaf", "moss", "red", "more", "0", "hybrid"),
    # Without normalisation the long vector would win: 9 to 0.5.
    ("red.png", "more", "match", "leaf", "moss", "1", "negative"),
]
COLOURS = {"red.png": (255, 0, 0), "leaf.png": (0, 255, 0)}


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_by_hand(tmp_path: Path, name: str) -> None:
    write_files(tmp_path / PICTURES[name], COLOURS)
    write_files(tmp_path, {QUESTIONS[name][0]: csv_text(MCQ, *QUESTION_ROWS)})
    found = scored(name, tmp_path, TABLE)
    assert found.values == {
        "accuracy": [1, 0, 1, 1], "kind_positive/accuracy": [1], "kind_negative/accuracy": [0, 1],
        "kind_hybrid/accuracy": [1],
    }  # fmt: skip
    assert found.pictures["accuracy"] == [1, 0, 0, 1]
    assert found.notes == [f"{QUESTIONS[name][0]}: 4 found, {QUESTIONS[name][1]:,} published"]


def test_retrieval_by_hand_and_a_cell_is_never_run(tmp_path: Path) -> None:
    rows = {"plain": [["red"], ["leaf", "more"]], "negated": [["moss, no red"], ["moss"]]}
    for kind, listed in rows.items():
        cells = [*map(str, listed), f"open('{tmp_path}/run', 'w')"]
        table = zip([f"/x/{name}" for name in (*COLOURS, "red.png")], cells, strict=True)
        write_files(tmp_path, {CAPTIONS[kind]: csv_text(("filepath", "captions"), *table)})
    write_files(tmp_path / "val2017", COLOURS)
    found = scored("negbench_coco_retrieval", tmp_path, TABLE | {"moss, no red": (0, 1, 0)}, ks=(1, 2))
    short = found.values
    assert (short["plain/recall_at_1"], short["plain/recall_at_2"]) == ([1, 1, 0], [1, 1, 1])
    assert (short["negated/recall_at_1"], short["negated/recall_at_5"]) == ([0, 1], [1, 1])
    assert not (tmp_path / "run").exists()
    assert "1 rows lack captions (row 2, counted from 0)" in found.notes[0]


def test_a_row_with_another_answer_is_refused(tmp_path: Path) -> None:
    write_files(tmp_path, {QUESTIONS["negbench_coco_mcq"][0]: csv_text(MCQ, ("red.png", *"abcd", "4", "positive"))})
    refused("negbench_coco_mcq", tmp_path, r"rephrased.csv: 1 rows lack answer \(row 0, counted from 0\)")
