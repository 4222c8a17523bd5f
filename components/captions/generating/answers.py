"""The table of a task's answers: an export of the store, one row per question, in the questions' order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from more_itertools import batched

from components.captions.generating.asking.questions import Questions
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Request
from components.captions.prompting.tasks import find_task
from components.core.system.errors import InputError
from components.core.tables.records import GENERATIONS, SKIPPED

_BLOCK = 10_000
Row = dict[str, object]


def write_answers(path: Path, store: GenerationStore, questions: Questions) -> int:
    """Write the table block by block; returns the number of questions without a usable answer.

    Raises:
        InputError: the store has neither an answer to a question nor a failure.
    """
    rejected = 0
    with GENERATIONS.writer(path, lambda: {SKIPPED: json.dumps(dict(sorted(questions.skipped.items())))}) as append:
        for block in batched(questions.read(), _BLOCK):
            rows = _rows(store, questions, block)
            append({name: [row.get(name) for row in rows] for name in GENERATIONS.schema.names})
            rejected += sum(not row["accepted"] for row in rows)
    return rejected


def _rows(store: GenerationStore, questions: Questions, block: Sequence[Request]) -> list[Row]:
    keys = [question.key for question in block]
    answers = _Answers(store, keys)
    if questions.task.judges is None:
        return [_row(questions, question, _parsed(answers, question.key, questions)) for question in block]
    rejected = [question for question in block if questions.rejects(answers.answers.get(question.key))]
    revisions = {question.key: questions.revision(question).key for question in rejected}
    revised = _Answers(store, list(revisions.values()))
    return [_row(questions, one, _judged(questions, one, answers, revised, revisions.get(one.key))) for one in block]


class _Answers:
    """Answers and failures of a block of questions."""

    def __init__(self, store: GenerationStore, keys: list[str]) -> None:
        self.answers = store.answers(list(dict.fromkeys(keys)))
        self.failures = store.failures([key for key in keys if key not in self.answers])


def _parsed(answers: _Answers, key: str, questions: Questions, task: str | None = None) -> Row:
    """Columns `text`, `accepted` and `reason` of one answer."""
    if key not in answers.answers:
        if key not in answers.failures:
            raise InputError(
                f"generation store: an answer to task '{questions.task.name}' is missing (key {key[:12]}...): run "
                f"`dvc repro synthesize@{questions.task.name}` again, and do not prune a store that is in use"
            )
        return {"text": None, "accepted": False, "reason": f"failed: {answers.failures[key]}"}
    text = (find_task(task) if task else questions.task).parse(answers.answers[key])
    return {"text": text, "accepted": text is not None, "reason": None if text is not None else "unparsable"}


def _judged(
    questions: Questions, question: Request, verdicts: _Answers, revised: _Answers, revision: str | None
) -> Row:
    """The candidate, or the judge's text instead; `revision` is the key of the question that the judge answered."""
    if revision is not None:
        rewritten = _parsed(revised, revision, questions, questions.task.judges)
        return {**rewritten, "verdict": "no", "written_by": "judge"}
    verdict = _parsed(verdicts, question.key, questions)
    if verdict["text"] is None:
        return verdict
    candidate = question.source.inputs[questions.task.inputs[1]]
    return {"text": candidate, "accepted": True, "reason": None, "verdict": "yes", "written_by": "generator"}


def _row(questions: Questions, question: Request, outcome: Row) -> Row:
    inputs, source = [question.source.inputs[name] for name in questions.task.inputs], question.source
    return {
        "id": source.id,
        "sample": question.sample,
        "source": inputs[0],
        "key": question.key,
        "other_id": source.other_id,
        "other_source": inputs[-1] if source.other_id is not None else None,
        **outcome,
    }
