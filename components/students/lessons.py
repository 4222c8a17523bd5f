"""What a student is taught: lessons written by hand, or a model's answers that pass the checks of their text."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from more_itertools import batched

from components.captions.asking.questions import import_replay
from components.captions.engines import make_engine
from components.captions.store import GenerationStore
from components.captions.tasks import find_task
from components.core.errors import InputError
from components.core.files import content_hash
from components.core.settings import Settings, Student
from components.core.table import Table
from components.students.batches import chat_of
from components.students.questions import ask_tasks
from components.students.teacher import Lesson, read_lessons

EVALUATION = Path("data/evaluation")
_ASKED = "cliptune.asked"
_BLOCK = 10_000
LESSONS = Table(
    "lessons",
    pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("task", "inputs", "answer")]),
)
"""A task, its inputs as a JSON object, and the answer that a student learns."""


def lessons_of(student: Student, path: Path) -> list[Lesson]:
    """The lessons of a student, in a fixed order; those of a model must have been asked for, see `ask_teacher`.

    Raises:
        InputError: a file is missing or teaches nothing, or `path` is missing or was asked for with other settings.
    """
    if isinstance(student.teacher, str):
        return _drawn(student, _read(student, path))
    lessons = [lesson for file in student.teacher for lesson in read_lessons(file, student.tasks)]
    taught = {lesson.task.name for lesson in lessons}
    for name in student.tasks:
        if find_task(name).name not in taught:
            files = ", ".join(str(file) for file in student.teacher)
            raise InputError(f"{files} teach nothing for task '{name}': add lessons, or take the task off the student")
    return _drawn(student, lessons)


def _drawn(student: Student, lessons: list[Lesson]) -> list[Lesson]:
    """At most `per_task` lessons of each task, in their order."""
    if student.per_task is None:
        return lessons
    order = random.Random(student.seed).sample(range(len(lessons)), len(lessons))
    left = Counter(dict.fromkeys(student.tasks, student.per_task))
    kept = []
    for place in order:
        if left[lessons[place].task.name]:
            left[lessons[place].task.name] -= 1
            kept.append(place)
    return [lessons[place] for place in sorted(kept)]


def ask_teacher(settings: Settings, student: Student, path: Path) -> None:
    """Have the student's teacher answer its tasks, through the generation store, and write a `LESSONS` table.

    Answers are kept that could be parsed and pass the row rules of their table that need no facts.

    Raises:
        InputError: the teacher cannot work, or a task's input is missing.
    """
    from components.students.rules import passing
    from components.validation.measuring.probes import find_probes

    assert isinstance(student.teacher, str)
    assert student.captions is not None
    probes = replace(find_probes(settings, EVALUATION), facts=None)
    store = GenerationStore(settings.synthesize.store)
    lessons: list[Lesson] = []
    try:
        import_replay(store, settings)
        engine = make_engine(settings.synthesize, student.teacher)
        for name, answered in ask_tasks(settings, student.tasks, student.captions, engine, store, path.parent):
            task = find_task(name)
            kept = passing(task, answered, settings, probes, {})
            taught = [
                Lesson(task, {text: found.source.inputs[text] for text in task.inputs}, found.text)
                for found, good in zip(answered, kept, strict=True)
                if good and found.text is not None
            ]
            print(f"{name}: {len(answered)} answers of the teacher, {len(taught)} lessons")
            lessons += taught
    finally:
        store.close()
    _write(student, path, lessons)


def hash_of(lessons: Sequence[Lesson]) -> str:
    """Hash of every question, as engines are asked it, and of its answer, in order."""
    parts = (
        part
        for lesson in lessons
        for part in (lesson.task.name, json.dumps([dict(message) for message in chat_of(lesson)]), lesson.answer)
    )
    return content_hash(*parts)


def _write(student: Student, path: Path, lessons: Sequence[Lesson]) -> None:
    with LESSONS.writer(path, lambda: {_ASKED: _asked(student)}) as append:
        for block in batched(lessons, _BLOCK):
            append(
                {
                    "task": [lesson.task.name for lesson in block],
                    "inputs": [json.dumps(dict(lesson.inputs)) for lesson in block],
                    "answer": [lesson.answer for lesson in block],
                }
            )


def _read(student: Student, path: Path) -> list[Lesson]:
    again = "run `python -m components.students.students --lessons-only`"
    if not path.exists():
        raise InputError(f"{path} is missing: {again}")
    rows = LESSONS.read(path).to_pylist()
    if pq.read_metadata(path).metadata.get(_ASKED.encode()) != _asked(student).encode():
        raise InputError(f"{path} was asked for with other settings: {again}")
    return [Lesson(find_task(row["task"]), json.loads(row["inputs"]), row["answer"]) for row in rows]


def _asked(student: Student) -> str:
    return student.model_dump_json(include={"tasks", "teacher", "captions"})
