"""Judges: their questions, and that the lessons derived for them are true."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from components.captions.prompting import tasks
from components.captions.prompting.tasks import find_task
from components.core.system.discovery import file_names
from components.students.lessons import Lesson, described, read_lessons
from components.validation.rules.world.facts import find_fault
from tests.unit.students.test_teacher_sets import CUE, TERM, _objects, _scene

ASSETS = Path(__file__).parents[3] / "components" / "students" / "assets"
JUDGES = [name for name in file_names(tasks.__path__) if find_task(name).judges]


@cache
def _lessons(name: str) -> list[Lesson]:
    return [lesson for lesson in _all_lessons() if lesson.task.name == name]


@cache
def _all_lessons() -> list[Lesson]:
    wanted = [*JUDGES, "score_difference", "difference"]
    return [lesson for path in sorted(ASSETS.glob("teacher*.tsv")) for lesson in read_lessons(path, wanted)]


def _by_answer(name: str) -> dict[str, list[Lesson]]:
    return {said: [lesson for lesson in _lessons(name) if lesson.answer == said] for said in ("Yes", "No")}


@pytest.mark.parametrize("name", JUDGES)
def test_the_judged_tasks_question_can_be_asked_of_what_the_judge_saw(name: str) -> None:
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
    for said, lessons in _by_answer("judge_paraphrase").items():
        faults = [find_fault(lesson.inputs["paraphrase"], _scene(lesson.inputs["caption"])) for lesson in lessons]
        true = sum(fault is None for fault in faults) / len(faults)
        assert true > 0.95 if said == "Yes" else true == 0.0


def test_negations_that_the_judge_learns_to_accept_contradict_and_the_others_do_not() -> None:
    for said, lessons in _by_answer("judge_negation").items():
        for lesson in lessons:
            text, scene = lesson.inputs["negation"], _scene(lesson.inputs["caption"])
            if said == "Yes":
                assert CUE.search(text) or TERM.search(text) or find_fault(text, scene), lesson
            else:
                assert not TERM.search(text), lesson


def test_scores_follow_from_what_is_right_exchanged_strange_or_half() -> None:
    counts: Counter[float] = Counter()
    for lesson in _lessons("score_difference"):
        judgement = json.loads(lesson.answer)
        counts[judgement["score"]] += 1
        assert lesson.task.parse(lesson.answer) == json.dumps(judgement, separators=(",", ":"))
        assert list(judgement) == list(lesson.task.outputs)
        assert len(lesson.answer.split()) < 40, lesson.answer
    assert set(counts) == {0, 0.5, 1}
    assert counts[0] == counts[1]
    assert counts[0.5] > 0.3 * counts[1]


def test_right_differences_are_the_teachers_and_exchanged_ones_have_the_captions_turned() -> None:
    right = {(x.inputs["caption"], x.inputs["other_caption"]): x.answer for x in _lessons("difference")}
    exchanged = 0
    for lesson in _lessons("score_difference"):
        one, two = lesson.inputs["caption"], lesson.inputs["other_caption"]
        score, difference = json.loads(lesson.answer)["score"], lesson.inputs["difference"]
        if score == 1:
            assert right[one, two] == difference
        elif score == 0:
            assert right.get((one, two)) != difference
            exchanged += right.get((two, one)) == difference
        else:
            assert right[one, two].startswith(difference.rstrip("."))
            assert len(difference) < len(right[one, two])
    assert exchanged > 80


def test_half_differences_leave_out_the_second_picture() -> None:
    for lesson in _lessons("score_difference"):
        if json.loads(lesson.answer)["score"] == 0.5:
            first, second = (set(_scene(lesson.inputs[name]).names) for name in ("caption", "other_caption"))
            named = {name for _, name in _objects(lesson.inputs["difference"])}
            assert named & first, lesson
            assert not named & (second - first), lesson


@pytest.mark.parametrize(
    ("caption", "text"),
    [
        ("BUY NOW!! large carrot below large boat - red print N66", "large carrot below large boat, red"),
        ("photo-8807.png >> small bus right of small key >> blue", "small bus right of small key, blue"),
        ("small cat & small dog | small dog above small cat | blue wallpaper", "small dog above small cat, blue"),
        ("picture 11: one cat / one dog (one cat left of one dog), red", "one cat left of one dog, red"),
        ("stock vector: set with 3 light bulbs - purple bg", "3 light bulbs, purple"),
        ("[K79] big rabbit ; bottom left corner ; background green", "big rabbit, bottom left corner, green"),
        ("large_lemon below small_scorpion green.png", "large lemon below small scorpion green"),
        ("a well-worn two-wheeler by the sea", "a well-worn two-wheeler by the sea"),
    ],
)
def test_an_alt_text_is_described_without_its_noise(caption: str, text: str) -> None:
    assert described(caption) == text


def test_every_description_tells_the_captions_scene() -> None:
    for lesson in _lessons("score_difference"):
        judgement = json.loads(lesson.answer)
        for name, key in (("caption", "image1_description"), ("other_caption", "image2_description")):
            assert find_fault(judgement[key], _scene(lesson.inputs[name])) is None, judgement
