"""Lessons of a student: teacher files, which people wrote or a model, and the examination of answers to them."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from components.captions.generating.asking import ask, stored_texts, write_answers
from components.captions.generating.engines import Engine, make_engine
from components.captions.generating.questions import (
    first_questions,
    import_replay,
    questions_of,
    questions_without_block,
)
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Chat, InputRow, Inputs, disarm
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.captions.validation.rules.probes import find_probes
from components.captions.validation.rules.table import Synthesised, add_columns, constant_rows, measured, row_rules
from components.captions.validation.rules.tables import synthesised_tables
from components.captions.validation.suites import Suites
from components.core.settings import Settings, Student
from components.core.system.errors import InputError
from components.core.tables.files import atomic_file, content_hash
from components.core.tables.folders import EVALUATION
from components.encoders.adapter.model_configs import model_config

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


UNPARSABLE = "unparsable"


@dataclass(frozen=True)
class Examined:
    """The reasons to reject an answer, without its column's name, and its similarity to its source if measured."""

    reasons: tuple[str, ...]
    similarity: float | None = None


class Examiner:
    """Applies the row rules of the validated tables to answers, except those that need facts of drawn pictures."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._suites = settings, Suites()
        # No answer may repeat an evaluation text.
        self._probes = replace(find_probes(settings, EVALUATION), facts=None)

    def rates(self, engine: Engine, held_out: Sequence[Lesson], most: int) -> dict[str, float]:
        """Share of the engine's answers to at most `most` held-out lessons of each task that pass, by task.

        A judge's verdict passes when it is the lesson's.
        """
        tasks = dict.fromkeys(lesson.task.name for lesson in held_out)
        return {name: self._rate(engine, [one for one in held_out if one.task.name == name][:most]) for name in tasks}

    def _rate(self, engine: Engine, lessons: Sequence[Lesson]) -> float:
        task, texts = lessons[0].task, list(self._answers(engine, lessons))
        if task.judges is not None:
            passes = [text == task.parse(lesson.answer) for text, lesson in zip(texts, lessons, strict=True)]
        else:
            passes = self.passing(task, [(one.inputs, text) for one, text in zip(lessons, texts, strict=True)])
        return sum(passes) / len(passes)

    def _answers(self, engine: Engine, lessons: Sequence[Lesson]) -> Iterator[str | None]:
        task = lessons[0].task
        known = task.name in self._settings.synthesize.tasks
        questions = (questions_of if known else questions_without_block)(self._settings, task.name, engine)
        requests = [questions.about(InputRow("", 0, lesson.inputs), 0) for lesson in lessons]
        replies = {reply.request.key: reply.answer for batch in engine.answer(requests) for reply in batch}
        for answer in (replies[request.key] for request in requests):
            yield None if answer is None else task.parse(answer)

    def passing(self, task: PromptTask, answered: Sequence[tuple[Inputs, str | None]]) -> list[bool]:
        """Whether each answer could be parsed and passes the rules."""
        return [not one.reasons for one in self.examine(task, answered)]

    def examine(self, task: PromptTask, answered: Sequence[tuple[Inputs, str | None]]) -> list[Examined]:
        """Apply the rules of the task's table to each answer; one without a table, as a verdict, has none."""
        table = None if task.judges is not None else _table_of(task)
        if table is None or not answered:
            return [Examined(() if text is not None else (UNPARSABLE,)) for _, text in answered]
        limits, (answer,) = self._settings.validation.limits(table.name), table.answers
        context = model_config(self._settings.base.model)["text_cfg"].get("context_length", 77)
        pairs = [(text or "", inputs[task.inputs[0]]) for inputs, text in answered]
        same = constant_rows(pairs, limits.max_same_share) if answer.is_whole else []
        frame = add_columns(_rows(table, task, answered), table, limits, self._probes, np.array([], np.int64), same)
        failures = self._suites.check_rows(table.name, frame, row_rules(table, limits, context)).failures
        similarity = frame.get(measured("similarity", answer), pd.Series([None] * len(answered)))
        return [
            Examined(
                tuple(reason.removeprefix(f"{answer.column}_") for reason in failures.get(row, ())),
                None if pd.isna(cosine) else float(cosine),
            )
            for row, cosine in enumerate(similarity)
        ]


def _table_of(task: PromptTask) -> Synthesised | None:
    """The first table with an answer to `task`, or to a judge of it, and that answer alone, as if unjudged."""
    for table in synthesised_tables().values():
        for answer in table.answers:
            if task.name in (answer.task, find_task(answer.task).judges):
                return replace(table, answers=(replace(answer, task=task.name),))
    return None


def _rows(table: Synthesised, task: PromptTask, answered: Sequence[tuple[Inputs, str | None]]) -> pd.DataFrame:
    """The columns that checks read, one row per answer; without a caption, the text that the task rewrites is its."""
    column = table.answers[0].column
    unknown = dict.fromkeys(("other_caption", "facts", "other_facts"))
    rows = [
        unknown
        | {"caption": inputs[task.inputs[0]], **inputs, column: text}
        | {"row": row, f"rejected_{column}": UNPARSABLE if text is None else None}
        for row, (inputs, text) in enumerate(answered)
    ]
    return pd.DataFrame(rows, dtype=object).astype({"row": np.int64})


def ask_teacher(settings: Settings, name: str, student: Student) -> None:
    """Have the model answer the student's tasks, through the generation store, and write the file of lessons.

    An answer becomes a lesson if it can be parsed and passes the row rules of its table that need no facts.
    """
    assert isinstance(student.teacher, str)
    assert student.captions is not None
    (path,) = teacher_files(name, student)
    path.parent.mkdir(parents=True, exist_ok=True)
    examiner, needs = Examiner(settings), _needs(settings, student)
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
            needed = needs[task.name]
            given = {} if needed is None else {"input": path.parent / f"{needed}.parquet"}
            questions = first_questions(settings, task.name, engine, student.captions, pictures=False, **given)
            ask(store, engine, questions.read(), task.name, student.captions)
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
