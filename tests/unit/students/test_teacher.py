"""Teacher sets of both forms, and what is wrong with one."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from components.captions import tasks
from components.core.discovery import file_names
from components.core.errors import InputError
from components.students.lessons import Lesson, read_lessons

ASSETS = Path(__file__).parents[3] / "components" / "students" / "assets"
NAMES = file_names(tasks.__path__)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "teacher.tsv"


def test_a_column_per_task(path: Path) -> None:
    path.write_text("caption\tparaphrase_1\tparaphrase_2\nIMG dog\tA dog.\tOne hound.\n")
    lessons = read_lessons(path, ["paraphrase_1", "paraphrase_2", "rewrite", "difference"])
    assert [(lesson.task.name, lesson.inputs, lesson.answer) for lesson in lessons] == [
        ("paraphrase_1", {"caption": "IMG dog"}, "A dog."),
        ("paraphrase_2", {"paraphrase_1": "A dog."}, "One hound."),
        ("rewrite", {"caption": "IMG dog"}, "One hound."),
    ]
    assert len(read_lessons(path, ["rewrite"])) == 1


def test_two_tasks_of_one_table_learn_from_its_columns(path: Path) -> None:
    path.write_text("caption\tabsent_object\tabsence\nIMG dog\tcat\tA dog, no cat.\n")
    lessons = read_lessons(path, ["name_absent", "state_absence", "name_unit"])
    assert [(lesson.task.name, lesson.inputs, lesson.answer) for lesson in lessons] == [
        ("name_absent", {"caption": "IMG dog"}, "cat"),
        ("state_absence", {"caption": "IMG dog", "absent_object": "cat"}, "A dog, no cat."),
    ]
    path.write_text("caption\tunit\tunit_foil\nIMG dog\ta dog\ta cat\n")
    lessons = read_lessons(path, ["name_unit", "change_unit"])
    assert [(lesson.inputs, lesson.answer) for lesson in lessons] == [
        ({"caption": "IMG dog"}, "a dog"),
        ({"unit": "a dog", "caption": "IMG dog"}, "a cat"),
    ]


def test_a_row_per_lesson(path: Path) -> None:
    header = "task\tcaption\tother_caption\tanswer\n"
    path.write_text(header + "negate_terms\ta dog\t\tNo dog.\ndifference\ta dog\ta cat\tDog, not cat.\n")
    lessons = read_lessons(path, ["difference", "negate_terms", "rewrite"])
    assert [(lesson.task.name, lesson.inputs) for lesson in lessons] == [
        ("negate_terms", {"caption": "a dog"}),
        ("difference", {"caption": "a dog", "other_caption": "a cat"}),
    ]
    assert [lesson.task.name for lesson in read_lessons(path, ["difference"])] == ["difference"]


@pytest.mark.parametrize(
    ("row", "lacking"), [("difference\ta dog\t\tDog.", "other_caption"), ("difference\ta dog\ta cat\t", "answer")]
)
def test_what_a_row_lacks_is_named(path: Path, row: str, lacking: str) -> None:
    path.write_text(f"task\tcaption\tother_caption\tanswer\n{row}\n")
    with pytest.raises(InputError, match=rf"teacher\.tsv, line 2: task 'difference' has no '{lacking}'"):
        read_lessons(path, ["difference"])


def test_missing_file_is_named(path: Path) -> None:
    with pytest.raises(InputError, match=r"teacher\.tsv is missing"):
        read_lessons(path, ["rewrite"])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("caption\trewrite\nIMG\tcafé\n".encode("latin-1"), r"teacher\.tsv is not UTF-8 \(byte \d+\): save it"),
        (f"caption\trewrite\nIMG\t{'x' * 200_000}\n".encode(), r"teacher\.tsv: line 2 cannot be read \(field larger"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(path: Path, raw: bytes, message: str) -> None:
    path.write_bytes(raw)
    with pytest.raises(InputError, match=message):
        read_lessons(path, ["rewrite"])


def test_a_file_without_rows_teaches_nothing(path: Path) -> None:
    path.write_text("caption\tparaphrase_1\tparaphrase_2\n")
    assert read_lessons(path, NAMES) == []


def test_tasks_may_borrow_the_columns_of_others(path: Path) -> None:
    path.write_text("caption\tparaphrase_1\tparaphrase_2\nIMG dog\tA dog.\tOne hound.\n")
    lessons = read_lessons(path, ["paraphrase_semclip", "query_paraphrase"])
    assert [(lesson.task.name, lesson.inputs, lesson.answer) for lesson in lessons] == [
        ("paraphrase_semclip", {"caption": "IMG dog"}, "One hound."),
        ("query_paraphrase", {"query": "A dog."}, "One hound."),
    ]


def test_differences_are_answers_to_both_questions_about_them(path: Path) -> None:
    path.write_text("task\tcaption\tother_caption\tanswer\ndifference\ta dog\ta cat\tDog, not cat.\n")
    lessons = read_lessons(path, ["difference", "difference_cub"])
    assert [(lesson.task.name, lesson.answer) for lesson in lessons] == [
        ("difference", "Dog, not cat."),
        ("difference_cub", "Dog, not cat."),
    ]


def test_what_follows_from_a_file_comes_after_what_stands_in_it(path: Path) -> None:
    path.write_text("task\tcaption\tother_caption\tanswer\nnegate_terms\ta dog\t\tNo dog.\n")
    lessons = read_lessons(path, ["judge_negation", "negate_terms"])
    assert [lesson.task.name for lesson in lessons] == ["negate_terms", "judge_negation"]
    assert [lesson.task.name for lesson in read_lessons(path, ["negate_terms"])] == ["negate_terms"]


@cache
def _own_lessons() -> list[Lesson]:
    return [lesson for path in sorted(ASSETS.glob("teacher*.tsv")) for lesson in read_lessons(path, NAMES)]


def test_own_sets_teach_every_task() -> None:
    assert {lesson.task.name for lesson in _own_lessons()} == set(NAMES)


def test_every_lesson_of_the_own_sets_is_an_answer_that_its_task_can_read() -> None:
    unread = [lesson for lesson in _own_lessons() if not lesson.task.parse(lesson.answer)]
    assert unread == []
    assert all(set(lesson.inputs) == set(lesson.task.inputs) for lesson in _own_lessons())
