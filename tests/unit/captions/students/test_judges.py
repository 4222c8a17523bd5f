"""Judges: their questions, and that their lessons, which follow from the teacher sets, are true."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from components.captions.prompting import tasks
from components.captions.prompting.tasks import find_task
from components.captions.students.lessons import Lesson, read_lessons
from components.core.system.discovery import file_names
from components.data.world.fact_checks import find_fault
from research.lessons.verdicts import write_verdicts
from tests.unit.captions.students.test_teacher_sets import CUE, TERM, _objects, _scene

ASSETS = Path(__file__).parents[4] / "components" / "captions" / "students" / "assets"
JUDGES = [name for name in file_names(tasks.__path__) if find_task(name).judges]


@cache
def _all_lessons() -> list[Lesson]:
    wanted = [*JUDGES, "score_difference", "difference"]
    return [lesson for path in sorted(ASSETS.glob("teacher*.tsv")) for lesson in read_lessons(path, wanted)]


def _lessons(name: str, answer: str | None = None) -> list[Lesson]:
    return [one for one in _all_lessons() if one.task.name == name and answer in (None, one.answer)]


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
    counts = Counter(lesson.answer for lesson in _lessons(name))
    assert set(counts) == {"Yes", "No"}
    assert min(counts.values()) > 0.85 * max(counts.values()), counts
    assert counts.total() > 800


def test_paraphrases_that_the_judge_learns_to_accept_are_true_and_the_others_are_not() -> None:
    def share_of_true(answer: str) -> float:
        inputs = [lesson.inputs for lesson in _lessons("judge_paraphrase", answer)]
        return sum(find_fault(one["paraphrase"], _scene(one["caption"])) is None for one in inputs) / len(inputs)

    assert share_of_true("Yes") > 0.95
    assert share_of_true("No") == 0


def test_negations_that_the_judge_learns_to_accept_contradict_and_the_others_do_not() -> None:
    for lesson in _lessons("judge_negation"):
        text, scene = lesson.inputs["negation"], _scene(lesson.inputs["caption"])
        if lesson.answer == "Yes":
            assert CUE.search(text) or TERM.search(text) or find_fault(text, scene), lesson
        else:
            assert not TERM.search(text), lesson


def test_differences_score_one_if_right_zero_if_exchanged_or_strange_and_half_without_the_second_picture() -> None:
    right = {(x.inputs["caption"], x.inputs["other_caption"]): x.answer for x in _lessons("difference")}
    counts: Counter[float] = Counter()
    exchanged = 0
    for lesson in _lessons("score_difference"):
        one, two, difference = (lesson.inputs[name] for name in ("caption", "other_caption", "difference"))
        judgement = json.loads(lesson.answer)
        counts[judgement["score"]] += 1
        assert lesson.task.parse(lesson.answer) == json.dumps(judgement, separators=(",", ":"))
        assert list(judgement) == list(lesson.task.outputs)
        assert len(lesson.answer.split()) < 40, lesson.answer
        assert find_fault(judgement["image1_description"], _scene(one)) is None, judgement
        assert find_fault(judgement["image2_description"], _scene(two)) is None, judgement
        if judgement["score"] == 1:
            assert right[one, two] == difference
        elif judgement["score"] == 0:
            assert right.get((one, two)) != difference
            exchanged += right.get((two, one)) == difference
        else:
            assert right[one, two].startswith(difference.rstrip("."))
            first, second = (set(_scene(caption).names) for caption in (one, two))
            named = {name for _, name in _objects(difference)}
            assert named & first, lesson
            assert not named & (second - first), lesson
    assert set(counts) == {0, 0.5, 1}
    assert counts[0] == counts[1]
    assert counts[0.5] > 0.3 * counts[1]
    assert exchanged > 80


def test_the_shipped_verdicts_are_those_that_follow_from_the_teacher_sets(tmp_path: Path) -> None:
    write_verdicts(tmp_path)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (ASSETS / path.name).read_bytes(), "run `python -m research.lessons.verdicts`"
    assert len(list(tmp_path.iterdir())) == 2
