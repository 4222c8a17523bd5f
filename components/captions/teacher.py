"""The teacher sets: answers written by hand, which the students learn to give."""

from __future__ import annotations

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from components.captions.sources import Inputs
from components.captions.task import PromptTask
from components.captions.tasks import find_task
from components.errors import InputError

_ANSWERED_BY = {"rewrite": "paraphrase_2"}
"""Tasks whose answers stand in another task's column of the paraphrase set."""


@dataclass(frozen=True)
class Lesson:
    """A question and the answer that the teacher gives to it."""

    task: PromptTask
    inputs: Inputs
    answer: str


def read_lessons(path: Path, tasks: Collection[str]) -> list[Lesson]:
    """The lessons that a teacher file has for `tasks`, in the file's order.

    A file is tab-separated with a header. With a column `task` each row is one lesson: the task, its inputs by name
    and the `answer`. Without, each row holds a text per task, in a column named after the task.

    Raises:
        InputError: the file is missing, or a row lacks what its task asks about.
    """
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, delimiter="\t"))
    except FileNotFoundError:
        raise InputError(f"teacher set {path} is missing: restore it from git, or name another one") from None
    lessons = []
    for line, row in enumerate(rows, start=2):
        answers = _answers(row)
        for name in tasks:
            if name in answers:
                lessons.append(_lesson(path, line, row, name, answers[name]))
    return lessons


def _answers(row: dict[str, str]) -> dict[str, str]:
    if "task" in row:
        return {row["task"]: row["answer"]}
    return row | {task: row[column] for task, column in _ANSWERED_BY.items() if column in row}


def _lesson(path: Path, line: int, row: dict[str, str], name: str, answer: str) -> Lesson:
    task = find_task(name)
    lacking = [text for text in task.inputs if not row.get(text)] + ([] if answer else ["answer"])
    if lacking:
        raise InputError(f"{path}, line {line}: task '{name}' has no '{lacking[0]}': fill the column in")
    return Lesson(task, {text: row[text] for text in task.inputs}, answer)
