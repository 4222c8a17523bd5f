"""Teacher sets of both forms, and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.captions.student import TEACHERS
from components.captions.teacher import read_lessons
from components.errors import InputError

REPO = Path(__file__).parents[3]


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


def test_own_sets_teach_every_task() -> None:
    from components.captions import tasks
    from components.discovery import file_names

    names = file_names(tasks.__path__)
    taught = {lesson.task.name for path in TEACHERS for lesson in read_lessons(REPO / path, names)}
    assert taught == set(names)
