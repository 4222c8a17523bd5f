"""NegBench by hand: features are normalised, the first of equals is chosen, and tables are read as published."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from components.benchmarks.published import find_published
from components.core.system.errors import InputError
from components.test_sets.readers.negbench import CAPTIONS, OPTIONS, PICTURES, QUESTIONS
from tests.support.toy_context import toy_context
from tests.unit.test_sets.writing import write_files

TABLE = {"red": (1, 0, 0), "leaf": (0, 1, 0), "moss": (0, 1, 0), "no red": (0.6, 0.8, 0), "long": (9, 9, 9)}
QUESTION_ROWS = [
    ("/data/coco/red.png", ("red", "leaf", "no red", "long"), "0", "positive"),
    ("elsewhere/leaf.png", ("red", "leaf", "no red", "long"), "0", "negative"),
    ("leaf.png", ("leaf", "moss", "red", "no red"), "0", "hybrid"),
    # Without normalisation the long vector would win: 9 to 0.6.
    ("red.png", ("long", "no red", "leaf", "moss"), "1", "negative"),
]
COLOURS = {"red.png": (255, 0, 0), "leaf.png": (0, 255, 0)}


def _csv(*rows: dict[str, str]) -> str:
    writer = csv.DictWriter(text := io.StringIO(), list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _questions(*rows: tuple[str, tuple[str, ...], str, str]) -> str:
    keys = ("image_path", *OPTIONS, "correct_answer", "correct_answer_template")
    return _csv(*(dict(zip(keys, (path, *texts, right, kind), strict=True)) for path, texts, right, kind in rows))


@pytest.mark.parametrize("name", QUESTIONS)
def test_questions_by_hand(tmp_path: Path, name: str) -> None:
    pictures = {f"{PICTURES[name]}/{file}": colour for file, colour in COLOURS.items()}
    write_files(tmp_path, {QUESTIONS[name][0]: _questions(*QUESTION_ROWS), **pictures})
    context = toy_context(tmp_path, TABLE, allow_partial=True)
    scores = find_published(name).score(context)
    found = {metric.removeprefix(f"{name}/"): values.tolist() for metric, values in scores.values.items()}
    assert found == {
        "accuracy": [1, 0, 1, 1], "kind_positive/accuracy": [1], "kind_negative/accuracy": [0, 1],
        "kind_hybrid/accuracy": [1],
    }  # fmt: skip
    assert scores.pictures[f"{name}/accuracy"].tolist() == [1, 0, 0, 1]
    assert context.notes == [f"{QUESTIONS[name][0]}: 4 found, {QUESTIONS[name][1]:,} published"]


def test_retrieval_by_hand_and_a_cell_is_never_run(tmp_path: Path) -> None:
    rows = {"plain": [["red"], ["leaf", "no red"]], "negated": [["no red, long"], ["moss"]]}
    for kind, listed in rows.items():
        cells = [
            {"filepath": f"/x/{name}", "captions": str(texts)} for name, texts in zip(COLOURS, listed, strict=True)
        ]
        cells.append({"filepath": "/x/red.png", "captions": f"open('{tmp_path}/run', 'w')"})
        write_files(tmp_path, {CAPTIONS[kind]: _csv(*cells)})
    write_files(tmp_path, {f"val2017/{file}": colour for file, colour in COLOURS.items()})
    texts = TABLE | {"no red, long": (0.1, 1, 0), "no red": (1, 0.5, 0)}
    context = toy_context(tmp_path, texts, allow_partial=True, ks=(1, 2))
    found = find_published("negbench_coco_retrieval").score(context).values
    short = {key.removeprefix("negbench_coco_retrieval/"): values.tolist() for key, values in found.items()}
    assert (short["plain/recall_at_1"], short["plain/recall_at_2"]) == ([1, 1, 0], [1, 1, 1])
    assert (short["negated/recall_at_1"], short["negated/recall_at_5"]) == ([0, 1], [1, 1])
    assert not (tmp_path / "run").exists()
    assert "1 rows lack captions (row 2, counted from 0)" in context.notes[0]


def test_a_row_with_another_answer_is_refused(tmp_path: Path) -> None:
    file = QUESTIONS["negbench_coco_mcq"][0]
    write_files(tmp_path, {file: _questions(*QUESTION_ROWS, ("red.png", ("red",) * 4, "4", "positive"))})
    with pytest.raises(InputError, match=rf"{file}: 1 rows lack answer \(row 4, counted from 0\)"):
        find_published("negbench_coco_mcq").score(toy_context(tmp_path, TABLE))
