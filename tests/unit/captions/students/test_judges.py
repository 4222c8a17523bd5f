"""Judges: their questions, and their lessons, which follow from the teacher sets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from components.captions.prompting import tasks
from components.captions.prompting.tasks import find_task
from components.captions.students.lessons import read_lessons
from components.core.system.discovery import file_names
from research.lessons.verdicts import write_verdicts

ASSETS = Path(__file__).parents[4] / "components" / "captions" / "students" / "assets"
JUDGES = [name for name in file_names(tasks.__path__) if find_task(name).judges]


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_reads_the_inputs_and_the_answer_of_the_judged_task(name: str) -> None:
    judge, judged = find_task(name), find_task(str(find_task(name).judges))
    inputs = {column: f"text of {column}" for column in judge.inputs}
    assert set(judged.inputs) <= set(inputs)
    assert judge.inputs[0] == judged.inputs[0]
    assert judge.inputs[1:] == judged.outputs, "the candidate goes by the name of the judged task's answer"
    assert "text of caption" in judged.messages(inputs)[-1]["content"]


@pytest.mark.parametrize("name", JUDGES)
def test_lessons_of_judges_are_balanced(name: str) -> None:
    files = sorted(ASSETS.glob("teacher*.tsv"))
    counts = Counter(lesson.answer for path in files for lesson in read_lessons(path, [name]))
    assert set(counts) == {"Yes", "No"}
    assert min(counts.values()) > 0.85 * max(counts.values()), counts
    assert counts.total() > 800


def test_the_shipped_verdicts_are_those_that_follow_from_the_teacher_sets(tmp_path: Path) -> None:
    write_verdicts(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (ASSETS / path.name).read_bytes(), "run `python -m research.lessons.verdicts`"
    assert len(list(tmp_path.iterdir())) == 2
