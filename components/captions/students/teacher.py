"""A language model as teacher: its answers to a student's tasks, written as a teacher file."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from contextlib import closing
from graphlib import TopologicalSorter
from pathlib import Path

from components.captions.generating.asking import ask, stored_texts, write_answers
from components.captions.generating.engines import make_engine
from components.captions.generating.questions import import_replay, questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.tasks import find_task
from components.captions.students.acceptance import Examiner
from components.captions.students.lessons import teacher_files
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from components.core.tables.files import atomic_file


def ask_teacher(settings: Settings, name: str, student: Student) -> None:
    """Have the model answer the student's tasks, through the generation store, and write the file of lessons.

    An answer becomes a lesson if it can be parsed and passes the row rules of its table that need no facts.
    """
    assert isinstance(student.teacher, str)
    (path,) = teacher_files(name, student)
    path.parent.mkdir(parents=True, exist_ok=True)
    examiner, needs = Examiner(settings), _needs(settings, student)
    moved = _moved(settings, student, needs, path.parent)
    columns = ["task", *dict.fromkeys(text for task in student.tasks for text in find_task(task).inputs), "answer"]
    with (
        closing(GenerationStore(settings.synthesize.store)) as store,
        atomic_file(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as stream,
    ):
        import_replay(store, settings)
        engine = make_engine(settings.synthesize, student.teacher)
        writer = csv.DictWriter(stream, columns, delimiter="\t")
        writer.writeheader()
        order = TopologicalSorter({task: [needed] if needed else [] for task, needed in needs.items()})
        for task in map(find_task, order.static_order()):
            questions = questions_of(moved, task.name, engine)
            ask(store, engine, questions.read(), task.name, questions.most)
            if task.name in needs.values():
                write_answers(path.parent / f"{task.name}.parquet", store, questions)
            answered = [
                ({column: row.inputs[column] for column in task.inputs}, text)
                for row, text in stored_texts(store, questions)
            ]
            kept = examiner.passing(task, answered)
            writer.writerows(
                {"task": task.name, **inputs, "answer": text}
                for (inputs, text), good in zip(answered, kept, strict=True)
                if good
            )
            print(f"{task.name}: {len(answered)} answers of the teacher, {sum(kept)} lessons")


def _needs(settings: Settings, student: Student) -> dict[str, str | None]:
    """Task -> the task whose answers are its inputs, None for a task that reads another table."""
    needs = {}
    for name in student.tasks:
        if name not in settings.synthesize.tasks:
            raise InputError(f"params.yaml has no block synthesize.tasks.{name}: add one")
        needs[name] = needed = settings.synthesize.before(name)
        if needed is not None and needed not in student.tasks:
            raise InputError(f"params.yaml: task '{name}' needs the answers of '{needed}': add that task")
    return needs


def _moved(settings: Settings, student: Student, needs: Mapping[str, str | None], folder: Path) -> Settings:
    """The settings with one sample per task about the student's number of captions, and with answers in `folder`."""
    tasks = dict(settings.synthesize.tasks)
    for name, needed in needs.items():
        given = folder / f"{needed}.parquet" if needed is not None else tasks[name].input
        changes = {"input": given, "samples": 1, "max_captions": student.captions, "pairs": None, "pictures": False}
        tasks[name] = tasks[name].model_copy(update=changes)
    return settings.model_copy(update={"synthesize": settings.synthesize.model_copy(update={"tasks": tasks})})
