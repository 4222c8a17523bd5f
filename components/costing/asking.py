"""The questions of prompt tasks to a language model: all, those without an answer, and their tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq
from more_itertools import batched

from components.captions.generating.engines import Engine, engine_of
from components.captions.generating.questions import Questions, questions_of
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
_BLOCK = 500
_COLUMNS = ("key", "task", "model")


@dataclass(frozen=True)
class TaskQuestions:
    """The questions of a task.

    Attributes:
        all: their number, at most if the input table does not exist yet.
        open: the number of those that neither the store nor `synthesize.cached_answers` answers.
        tokens_in: of the open questions.
        tokens_out: of their answers, at most.
        sure: whether the input table exists, so that the numbers are those of its rows.
    """

    all: int
    open: int
    tokens_in: int
    tokens_out: int
    sure: bool


def count_questions(settings: Settings) -> dict[str, TaskQuestions]:
    """The questions of each task of params.yaml.

    Raises:
        InputError: a task or its model is wrong.
    """
    answers = _KnownAnswers(settings)
    try:
        return {name: _count(settings, name, answers) for name in settings.synthesize.tasks}
    finally:
        answers.close()


class _KnownAnswers:
    """Answers in the store, and in the replay file, which is merged into it first."""

    def __init__(self, settings: Settings) -> None:
        replay = settings.synthesize.cached_answers
        exists = replay is not None and replay.is_file()
        table = pq.read_table(replay, columns=list(_COLUMNS)) if exists else pa.table({name: [] for name in _COLUMNS})
        keys, *of = (table[name].to_pylist() for name in _COLUMNS)
        self._replayed, self.replayed_of = frozenset(keys), Counter(zip(*of, strict=True))
        try:
            self._store: GenerationStore | None = GenerationStore(settings.synthesize.store, must_exist=True)
        except InputError:
            # A store that does not exist yet has no answers.
            self._store = None

    def stored(self, questions: Iterable[Request]) -> set[str]:
        """The keys of `questions` with an answer in the store."""
        keys = {question.key for question in questions}
        return set(self._store.answers(keys)) if self._store is not None else set()

    def among(self, questions: Sequence[Request]) -> int:
        """The number of `questions` with an answer."""
        return len(self.stored(questions) | self._replayed & {question.key for question in questions})

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()


def _count(settings: Settings, name: str, answers: _KnownAnswers) -> TaskQuestions:
    questions, task = _questions(settings, name), settings.synthesize.tasks[name]
    rows, sure = questions.most, task.input.is_file()
    if sure:
        step = max(1, rows // _SAMPLE)
        sample = list(questions.read(Shard(0, step) if step > 1 else None))
    else:
        sample = [questions.about(InputRow("", 0, dict.fromkeys(questions.task.inputs, _CAPTION)), 0)]
    if not sample:
        return TaskQuestions(0, 0, 0, 0, sure)
    if sure:
        answered = sum(answers.among(block) for block in batched(sample, _BLOCK)) / len(sample)
    else:
        answered = min(1.0, answers.replayed_of[name, questions.model] / rows)
    # The first questions are sent to the model although the replay has their answers.
    live = 0 if answers.stored(sample[:1]) else min(task.always_ask_first, rows)
    unanswered = max(live, round(rows * (1 - answered)))
    characters = sum(len(content) for question in sample for _, content in question.chat) / len(sample)
    tokens = round(unanswered * characters / _CHARACTERS_PER_TOKEN)
    return TaskQuestions(rows, unanswered, tokens, unanswered * task.max_tokens, sure)


def _questions(settings: Settings, name: str) -> Questions:
    engine = engine_of(settings.synthesize, name)
    try:
        return questions_of(settings, name, engine)
    except InputError:
        # A student that is not trained yet has no name and no answers.
        return questions_of(settings, name, cast("Engine", SimpleNamespace(model="")))
