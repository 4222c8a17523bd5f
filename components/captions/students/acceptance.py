"""Acceptance: the share of the answers of base and student to held-out lessons that pass the rules of `validate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from components.captions.generating.engines import Engine
from components.captions.generating.questions import questions_of, questions_without_block
from components.captions.prompting.request import InputRow, Inputs
from components.captions.prompting.task import PromptTask
from components.captions.prompting.tasks import find_task
from components.captions.students.lessons import Lesson
from components.captions.validation.rules.probes import find_probes
from components.captions.validation.rules.table import Synthesised, add_columns, row_rules
from components.captions.validation.rules.tables import synthesised_tables
from components.captions.validation.suites import Suites
from components.core.settings import Settings
from components.encoders.adapter.model_configs import model_config

EVALUATION = Path("data/evaluation")


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
        """Whether each answer could be parsed and passes the rules; one without a table, as a verdict, has none."""
        table = None if task.judges is not None else _table_of(task)
        if table is None or not answered:
            return [text is not None for _, text in answered]
        limits = self._settings.validation.limits(table.name)
        context = model_config(self._settings.base.model)["text_cfg"].get("context_length", 77)
        frame = add_columns(_rows(table, task, answered), table, limits, self._probes, np.array([], np.int64))
        failures = self._suites.check_rows(table.name, frame, row_rules(table, limits, context)).failures
        return [row not in failures for row in range(len(answered))]


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
        | {"row": row, f"rejected_{column}": "unparsable" if text is None else None}
        for row, (inputs, text) in enumerate(answered)
    ]
    return pd.DataFrame(rows, dtype=object).astype({"row": np.int64})
