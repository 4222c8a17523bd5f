"""The third teacher set: classes described and compared by hand."""

from __future__ import annotations

import csv
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from components.data.world.description.lexicon import load_lexicon
from components.validation.rules.checks.general import says_name
from components.validation.rules.world.checks import find_leak

TEACHER = Path(__file__).parents[3] / "components" / "students" / "assets" / "teacher_classes.tsv"
DESCRIBED, COMPARED = "class_description", "class_difference"

Row = dict[str, str]


@cache
def _rows() -> tuple[Row, ...]:
    with TEACHER.open(encoding="utf-8", newline="") as stream:
        return tuple(csv.DictReader(stream, delimiter="\t", strict=True))


def _of(task: str) -> list[Row]:
    return [row for row in _rows() if row["task"] == task]


def _described() -> set[str]:
    return {row["class_name"] for row in _of(DESCRIBED)}


def test_columns_and_counts() -> None:
    assert all(list(row) == ["task", "class_name", "other_class_name", "answer"] for row in _rows())
    counts = Counter(row["task"] for row in _rows())
    assert set(counts) == {DESCRIBED, COMPARED}
    assert min(counts.values()) >= 100


def test_classes_are_objects_of_the_world_and_some_stay_unseen() -> None:
    objects = set(load_lexicon().objects)
    assert _described() <= objects
    assert len(objects - _described()) >= 25
    compared = {row[column] for row in _of(COMPARED) for column in ("class_name", "other_class_name")}
    assert compared == _described(), "a class that is not described must not be compared either"


def test_no_question_and_no_answer_comes_twice() -> None:
    for key in (("task", "class_name", "other_class_name"), ("answer",)):
        counts = Counter(tuple(row[column].lower() for column in key) for row in _rows())
        assert counts.most_common(1)[0][1] == 1, counts.most_common(3)
    assert all(row["class_name"] != row["other_class_name"] for row in _rows())


@pytest.mark.parametrize(("task", "fewest"), [(DESCRIBED, 15), (COMPARED, 14)])
def test_answers_are_short_plain_sentences(task: str, fewest: int) -> None:
    for row in _of(task):
        answer = row["answer"]
        assert answer.isascii(), answer
        assert answer == " ".join(answer.split()), answer
        assert fewest <= len(answer.split()) <= 25, answer
        assert re.fullmatch(r"[A-Z].*[a-z]\.", answer), answer


def test_answers_name_what_they_are_about() -> None:
    for row in _of(DESCRIBED):
        assert says_name(row["answer"], row["class_name"]), row
    for row in _of(COMPARED):
        assert says_name(row["answer"], row["class_name"]), row
        assert says_name(row["answer"], row["other_class_name"]), row


def test_descriptions_are_varied() -> None:
    openings = Counter(tuple(row["answer"].replace(row["class_name"], "").split()[:3]) for row in _rows())
    assert openings.most_common(1)[0][1] < 0.2 * len(_rows())


def test_no_answer_holds_an_evaluation_frame_or_a_last_tier_word() -> None:
    texts = [text for row in _rows() for text in row.values() if text]
    assert [text for text in texts if find_leak(text)] == []
