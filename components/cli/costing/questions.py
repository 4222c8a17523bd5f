"""Counts the questions of each prompt task that no stored answer answers, and their tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pyarrow.parquet as pq

from components.captions.generating.engines import Engine, engine_of
from components.captions.generating.questions import questions_of
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import InputRow, Request
from components.core.settings import Settings
from components.core.system.errors import InputError
from components.core.tables.work_shard import Shard

_CHARACTERS_PER_TOKEN = 4
"""Of English, about, for the tokenizers of language models."""
_CAPTION = "a photo of two small dogs that play on the grass behind a red house"
"""Stands for texts that no stage has made yet."""
_SAMPLE = 2000
"""Questions whose tokens are counted, and which are looked up in the store."""


@dataclass(frozen=True)
class TaskQuestions:
    """Numbers of a task's questions.

    Attributes:
        open: those that neither the store nor `synthesize.cached_answers` answers.
        tokens_in, tokens_out: of the open questions, and of their answers at most.
        sure: whether the input table exists; without it the numbers are upper bounds.
    """

    all: int
    open: int
    tokens_in: int
    tokens_out: int
    sure: bool


def count_questions(settings: Settings) -> dict[str, TaskQuestions]:
    """The questions of each task of params.yaml."""
    answers, counts = KnownAnswers(settings), dict[str, TaskQuestions]()

    def count(name: str) -> TaskQuestions:
        if name not in counts:
            before = settings.synthesize.before(name)
            read = None if before is None else count(before)
            # The replay has answers about its own answers only.
            new = read.open / read.all if read is not None and read.all else 0.0
            counts[name] = _count_of_task(settings, name, answers, new)
        return counts[name]

    return {name: count(name) for name in settings.synthesize.tasks}


class KnownAnswers:
    """Answers in the store, and in the replay file, which is merged into it first."""

    def __init__(self, settings: Settings) -> None:
        replay, self._url = settings.synthesize.cached_answers, settings.synthesize.store
        rows = []
        if replay is not None and replay.is_file():
            table = pq.read_table(replay, columns=["key", "task", "model"])
            rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        self._replayed = frozenset(key for key, _, _ in rows)
        self.replayed_of = Counter((task, model) for _, task, model in rows)

    def stored(self, questions: Iterable[Request]) -> set[str]:
        """The keys of `questions` with an answer in the store."""
        try:
            store = GenerationStore(self._url, must_exist=True)
        except InputError:
            # A store that does not exist yet has no answers.
            return set()
        with closing(store):
            return set(store.answers({question.key for question in questions}))

    def among(self, questions: Sequence[Request]) -> int:
        """The number of `questions` with an answer."""
        return len(self.stored(questions) | self._replayed & {question.key for question in questions})


def _count_of_task(settings: Settings, name: str, answers: KnownAnswers, new: float) -> TaskQuestions:
    """The questions of a task; `new` is the share of its inputs that have not been written yet."""
    task = settings.synthesize.tasks[name]
    try:
        questions = questions_of(settings, name, engine_of(settings.synthesize, name))
    except InputError:
        # A student that is not trained yet has no name and no answers.
        questions = questions_of(settings, name, cast("Engine", SimpleNamespace(model="")))
    rows, sure = questions.most, task.input.is_file()
    if sure:
        step = max(1, rows // _SAMPLE)
        sample = list(questions.read(Shard(0, step) if step > 1 else None))
    else:
        sample = [questions.about(InputRow("", 0, dict.fromkeys(questions.task.inputs, _CAPTION)), 0)]
    if not sample:
        return TaskQuestions(0, 0, 0, 0, sure)
    if sure:
        answered = answers.among(sample) / len(sample)
    else:
        answered = min(1.0, answers.replayed_of[name, questions.model] / rows) * (1 - new)
    # The first questions are sent to the model although the replay has their answers.
    live = 0 if answers.stored(sample[:1]) else min(task.always_ask_first, rows)
    unanswered = max(live, round(rows * (1 - answered)))
    characters = sum(len(content) for question in sample for _, content in question.chat) / len(sample)
    tokens = round(unanswered * characters / _CHARACTERS_PER_TOKEN)
    return TaskQuestions(rows, unanswered, tokens, unanswered * task.max_tokens, sure)
