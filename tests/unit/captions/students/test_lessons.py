"""Lessons of a student, from teacher files of both forms."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from components.captions.prompting import tasks
from components.captions.prompting.tasks import find_task
from components.captions.students.lessons import Lesson, hash_of, lessons_of, read_lessons
from components.core.settings import Settings, Student
from components.core.system.discovery import file_names
from components.core.system.errors import InputError


def _student(path: Path, tasks: list[str], **changes: Any) -> Student:
    return Student.model_validate({"tasks": tasks, "teacher": [path]} | changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "teacher.tsv"


def test_a_task_that_no_file_teaches_is_named(path: Path, settings: Settings) -> None:
    path.write_text("caption\tparaphrase_1\nIMG dog\tA dog.\n")
    assert len(lessons_of(settings, "taught", _student(path, ["paraphrase_1"]))) == 1
    with pytest.raises(InputError, match=r"teacher\.tsv teach nothing for task 'paraphrase_2'"):
        lessons_of(settings, "taught", _student(path, ["paraphrase_1", "paraphrase_2"]))


def test_the_hash_depends_on_task_question_answer_and_order() -> None:
    one = Lesson(find_task("paraphrase_1"), {"caption": "a dog"}, "A hound.")
    others = [
        Lesson(find_task("rewrite"), one.inputs, "A hound."),
        Lesson(one.task, {"caption": "a cat"}, "A hound."),
        Lesson(one.task, one.inputs, "A tabby."),
    ]
    hashes = {hash_of([lesson]) for lesson in (one, *others)} | {hash_of([one, *others]), hash_of([*others, one])}
    assert len(hashes) == 6


def test_lessons_of_each_task_can_be_limited(path: Path, settings: Settings) -> None:
    lines = [f"{task}\tcaption {n}\tanswer {n}" for n in range(9) for task in ("rewrite", "negate_terms")]
    path.write_text("\n".join(["task\tcaption\tanswer", *lines]) + "\n", encoding="utf-8")

    def drawn(per_task: int | None, seed: int = 0) -> list[tuple[str, str]]:
        taught = _student(path, ["rewrite", "negate_terms"], per_task=per_task, seed=seed)
        return [(lesson.task.name, lesson.answer) for lesson in lessons_of(settings, "taught", taught)]

    everything, some = drawn(None), drawn(4)
    assert Counter(task for task, _ in some) == {"rewrite": 4, "negate_terms": 4}
    assert some == [lesson for lesson in everything if lesson in some], "in their order"
    assert drawn(4) == some != drawn(4, seed=1)
    assert drawn(100) == everything


ASSETS = Path(__file__).parents[4] / "components" / "captions" / "students" / "assets"
NAMES = file_names(tasks.__path__)
EDITS = "task\tcaption\tother_caption\tanswer\nnegate_terms\ta dog\t\tNo dog.\ndifference\ta dog\ta cat\tDog.\n"
DOG, BOTH = {"caption": "IMG dog"}, {"caption": "a dog", "other_caption": "a cat"}
TAUGHT: dict[str, list[tuple[str, dict[str, str], str]]] = {
    "caption\tparaphrase_1\tparaphrase_2\nIMG dog\tA dog.\tOne hound.\n": [
        ("paraphrase_1", DOG, "A dog."),
        ("paraphrase_2", {"paraphrase_1": "A dog."}, "One hound."),
        ("rewrite", DOG, "One hound."),
        ("paraphrase_semclip", DOG, "One hound."),
        ("query_paraphrase", {"query": "A dog."}, "One hound."),
    ],
    "caption\tabsent_object\tabsence\nIMG dog\tcat\tA dog, no cat.\n": [
        ("name_absent", DOG, "cat"), ("state_absence", DOG | {"absent_object": "cat"}, "A dog, no cat."),
    ],
    "caption\tunit\tunit_foil\nIMG dog\ta dog\ta cat\n": [
        ("name_unit", DOG, "a dog"), ("change_unit", DOG | {"unit": "a dog"}, "a cat"),
    ],
    EDITS: [
        ("negate_terms", {"caption": "a dog"}, "No dog."),
        ("difference", BOTH, "Dog."), ("difference_cub", BOTH, "Dog."),
    ],
}  # fmt: skip
"""Text of a file -> its lessons."""


def test_a_file_with_answers_to_a_task_of_its_own_teaches_it_no_other(path: Path) -> None:
    path.write_text(f"{EDITS}difference_cub\ta dog\ta cat\tA dog.\n")
    assert [lesson.answer for lesson in read_lessons(path, ["difference_cub"])] == ["A dog."]


@pytest.mark.parametrize("text", TAUGHT)
def test_a_file_teaches_the_tasks_of_its_columns_or_rows(path: Path, text: str) -> None:
    path.write_text(text)
    tasks = [name for name, *_ in TAUGHT[text]]
    found = read_lessons(path, ["judge_negation", *tasks, "swap_negative"])
    assert [(lesson.task.name, lesson.inputs, lesson.answer) for lesson in found] == TAUGHT[text]
    assert [lesson.task.name for lesson in read_lessons(path, tasks[:1])] == tasks[:1]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"task\tcaption\tother_caption\tanswer\ndifference\ta dog\t\tDog.\n",
         r"teacher\.tsv, line 2: task 'difference' has no 'other_caption'"),
        (b"task\tcaption\tother_caption\tanswer\ndifference\ta dog\ta cat\t\n", "task 'difference' has no 'answer'"),
        ("caption\tdifference\nIMG\tcafé\n".encode("latin-1"), r"teacher\.tsv is not UTF-8 \(byte \d+\): save it"),
        (f"caption\tdifference\nIMG\t{'x' * 200_000}\n".encode(), r"line 2 cannot be read \(field larger"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_or_lacks_a_field_is_named(path: Path, raw: bytes, message: str) -> None:
    path.write_bytes(raw)
    with pytest.raises(InputError, match=message):
        read_lessons(path, ["difference"])


def test_own_sets_teach_every_task_answers_that_it_can_read() -> None:
    lessons = [lesson for path in sorted(ASSETS.glob("teacher*.tsv")) for lesson in read_lessons(path, NAMES)]
    others = {"type_query", "caption_picture", "check_picture", "check_absent"}
    assert {lesson.task.name for lesson in lessons} == set(NAMES) - others
    assert [lesson for lesson in lessons if not lesson.task.parse(lesson.answer)] == []
    assert all(set(lesson.inputs) == set(lesson.task.inputs) for lesson in lessons)
