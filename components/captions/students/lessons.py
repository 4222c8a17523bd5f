"""Lessons of a student: the rows of teacher files, which people wrote or a model, see `ask_teacher`."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from components.captions.prompting.disarm import disarm
from components.captions.prompting.request import Chat, Inputs
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from components.core.tables.files import content_hash

STATE = Path("state/students")
"""Folders of lessons and checkpoints by name of the student, outside every stage's outputs."""
Row = Mapping[str, str]
_COLUMNS = {"query": "paraphrase_1"}
"""Columns of inputs that are not named after them."""
_ANSWER_COLUMNS = {
    "rewrite": "paraphrase_2",
    "paraphrase_semclip": "paraphrase_2",
    "query_paraphrase": "paraphrase_2",
    "name_absent": "absent_object",
    "state_absence": "absence",
    "name_unit": "unit",
    "change_unit": "unit_foil",
}
"""The columns of answers that are not named after their task."""
_SAME_ANSWERS = {"difference_cub": "difference"}
"""Tasks that learn the answers of another task where a file has none of their own."""


@dataclass(frozen=True)
class Lesson:
    """A question, the teacher's answer, and the wording of the question that the student learns."""

    task: PromptTask
    inputs: Inputs
    answer: str
    prompt: str = "own"


def teacher_files(name: str, student: Student) -> tuple[Path, ...]:
    """The files of a student's lessons; that of a model's answers has a path of its own for each teacher and tasks."""
    if not isinstance(student.teacher, str):
        return student.teacher
    asked = content_hash(student.model_dump_json(include={"tasks", "teacher", "captions"}))
    return (STATE / name / asked[:16] / "lessons.tsv",)


def lessons_of(settings: Settings, name: str, student: Student) -> list[Lesson]:
    """At most `per_task` lessons of each task, in a fixed order and in the wording of `synthesize.tasks`."""
    files, tasks = teacher_files(name, student), settings.synthesize.tasks
    if isinstance(student.teacher, str) and not files[0].exists():
        raise InputError(f"{files[0]} is missing: run `python -m components.captions.students.students --lessons-only`")
    lessons = [lesson for file in files for lesson in read_lessons(file, student.tasks)]
    taught = {lesson.task.name for lesson in lessons}
    for task in student.tasks:
        if find_task(task).name not in taught:
            raise InputError(
                f"{', '.join(map(str, files))} teach nothing for task '{task}': add lessons or remove the task"
            )
    return [
        replace(lesson, prompt=tasks[lesson.task.name].prompt) if lesson.task.name in tasks else lesson
        for lesson in _drawn(student, lessons)
    ]


def _drawn(student: Student, lessons: list[Lesson]) -> list[Lesson]:
    """At most `per_task` lessons of each task, in their order."""
    if student.per_task is None:
        return lessons
    left = Counter(dict.fromkeys(student.tasks, student.per_task))
    kept = []
    for place in random.Random(student.seed).sample(range(len(lessons)), len(lessons)):
        if left[lessons[place].task.name]:
            left[lessons[place].task.name] -= 1
            kept.append(place)
    return [lessons[place] for place in sorted(kept)]


def read_lessons(path: Path, tasks: Collection[str]) -> list[Lesson]:
    """The lessons of a teacher file for `tasks`, in the file's order.

    A file is tab-separated with a header. With a column `task` each row is one lesson: the task, its inputs by name
    and the `answer`. Without, each row holds a text per task, in a column named after the task.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream, delimiter="\t")
            rows = list(reader)
    except FileNotFoundError:
        raise InputError(f"teacher set {path} is missing: restore it from git, or name another one") from None
    except UnicodeDecodeError as error:
        raise InputError(f"teacher set {path} is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    except csv.Error as error:
        reason = f"line {reader.reader.line_num} cannot be read ({error}): close its quotes or shorten it"
        raise InputError(f"teacher set {path}: {reason}") from None
    own = {row.get("task") for row in rows}
    named = {name: name if name in own else _SAME_ANSWERS.get(name, name) for name in tasks}
    return [
        lesson
        for line, row in enumerate(rows, start=2)
        for name in tasks
        for lesson in _lessons(path, line, row, find_task(name), named[name])
    ]


def _lessons(path: Path, line: int, row: Row, task: PromptTask, named: str) -> Iterator[Lesson]:
    """The lesson that a row has for a task, which it may have under another name."""
    if "task" in row:
        if row["task"] == named:
            yield _lesson(path, line, row, task, "answer")
    elif (column := _ANSWER_COLUMNS.get(task.name, task.name)) in row:
        yield _lesson(path, line, row, task, column)


def _lesson(path: Path, line: int, row: Row, task: PromptTask, column: str) -> Lesson:
    inputs = {name: row.get(name) or row.get(_COLUMNS.get(name, name)) or "" for name in task.inputs}
    lacking = [name for name, text in {**inputs, "answer": row[column]}.items() if not text]
    if lacking:
        raise InputError(f"{path}, line {line}: task '{task.name}' has no '{lacking[0]}': fill the column in")
    return Lesson(task, inputs, row[column])


def chat_of(lesson: Lesson) -> Chat:
    """The question of a lesson, as sent to engines."""
    return lesson.task.render({name: disarm(text) for name, text in lesson.inputs.items()}, lesson.prompt)


def hash_of(lessons: Sequence[Lesson]) -> str:
    """Hash of every question, as sent to engines, and of its answer, in order."""
    parts = ((one.task.name, json.dumps([dict(part) for part in chat_of(one)]), one.answer) for one in lessons)
    return content_hash(*chain.from_iterable(parts))
