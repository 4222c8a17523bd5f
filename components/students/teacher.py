"""The teacher sets: answers written by hand, which the students learn to give."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.captions.inputs.sources import Inputs
from components.captions.task import PromptTask
from components.captions.tasks import find_task
from components.core.errors import InputError
from components.students.derived_lessons import Row, from_edits, from_paraphrases


@dataclass(frozen=True)
class _Column:
    """Where a paraphrase set has what a task asks about and answers, if not under the task's own names."""

    answer: str
    inputs: Inputs


_BORROWED = {
    "rewrite": _Column("paraphrase_2", {}),
    "paraphrase_semclip": _Column("paraphrase_2", {}),
    "query_paraphrase": _Column("paraphrase_2", {"query": "paraphrase_1"}),
}
_SAME_ANSWERS = {"difference_cub": "difference"}
"""Tasks that another task's answers are right for too."""


@dataclass(frozen=True)
class Lesson:
    """A question and the answer that the teacher gives to it."""

    task: PromptTask
    inputs: Inputs
    answer: str


def read_lessons(path: Path, tasks: Collection[str]) -> list[Lesson]:
    """The lessons that a teacher file has for `tasks`, in the file's order, and then those that follow from it.

    A file is tab-separated with a header. With a column `task` each row is one lesson: the task, its inputs by name
    and the `answer`. Without, each row holds a text per task, in a column named after the task. What judges learn
    follows from what is right and wrong there, see `derived_lessons`.

    Raises:
        InputError: the file is missing, or a row lacks what its task asks about.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
    except FileNotFoundError:
        raise InputError(f"teacher set {path} is missing: restore it from git, or name another one") from None
    lessons = [
        lesson for line, row in enumerate(rows, start=2) for name in tasks for lesson in _lessons(path, line, row, name)
    ]
    return lessons + derived_lessons(rows, tasks)


def derived_lessons(rows: Sequence[Row], tasks: Collection[str]) -> list[Lesson]:
    """What follows for `tasks` from the rows of a teacher file."""
    columns = set(rows[0]) if rows else set()
    drafts: Iterator[tuple[str, Inputs, str]] = iter(())
    if columns >= {"task", "caption", "other_caption"}:
        drafts = from_edits(rows)
    elif columns >= {"caption", "paraphrase_1", "paraphrase_2"}:
        drafts = from_paraphrases(rows)
    return [Lesson(find_task(name), inputs, answer) for name, inputs, answer in drafts if name in tasks]


def _lessons(path: Path, line: int, row: Row, name: str) -> Iterator[Lesson]:
    """The lesson that a row has for a task, if any."""
    task = find_task(name)
    if "task" in row:
        if row["task"] == _SAME_ANSWERS.get(name, name):
            yield _lesson(path, line, row, task, _Column("answer", {}))
        return
    column = _BORROWED.get(name, _Column(name, {}))
    if column.answer in row:
        yield _lesson(path, line, row, task, column)


def _lesson(path: Path, line: int, row: Row, task: PromptTask, column: _Column) -> Lesson:
    inputs = {text: row.get(column.inputs.get(text, text)) for text in task.inputs}
    lacking = [text for text, found in inputs.items() if not found]
    lacking += [] if row[column.answer] else ["answer"]
    if lacking:
        raise InputError(f"{path}, line {line}: task '{task.name}' has no '{lacking[0]}': fill the column in")
    return Lesson(task, {text: found for text, found in inputs.items() if found}, row[column.answer])
