"""How much a prompt task asks a language model: questions, those already answered, tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from more_itertools import batched

from components.captions.asking.questions import Questions, questions_of
from components.captions.engines import engine_of
from components.captions.request import InputRow, Reply, Request
from components.captions.store import GenerationStore
from components.core.errors import InputError
from components.core.settings import Settings
from components.core.work_shard import Shard

_CHARACTERS_PER_TOKEN = 4
"""Of English, about, for all tokenizers of today's language models."""
_CAPTION = "a photo of two small dogs that play on the grass behind a red house"
"""Stands for texts that no stage has made yet."""
_LOOKED_AT = 2000
"""Questions whose tokens are counted, and which are looked up in the store."""
_BLOCK = 500
_COLUMNS = ("key", "task", "model")


@dataclass(frozen=True)
class Asking:
    """What a task takes.

    Attributes:
        questions: how many there are, or can be where the table that they are about is not made yet.
        to_ask: those of them that neither the store nor `synthesize.replay` answers.
        tokens_in: of the questions to ask.
        tokens_out: of their answers, at most.
        sure: whether the table is there, so that the numbers are those of its rows.
    """

    questions: int
    to_ask: int
    tokens_in: int
    tokens_out: int
    sure: bool


class Answered:
    """Which questions have answers: in the store, or in the file that is merged into it first."""

    def __init__(self, settings: Settings) -> None:
        replay = settings.synthesize.replay
        there = replay is not None and replay.is_file()
        nothing = pa.table({name: [] for name in _COLUMNS})
        table = pq.read_table(replay, columns=list(_COLUMNS)) if there else nothing
        keys, *of = (table[name].to_pylist() for name in _COLUMNS)
        self._replayed, self._of = frozenset(keys), Counter(zip(*of, strict=True))
        try:
            self._store: GenerationStore | None = GenerationStore(settings.synthesize.store, must_exist=True)
        except InputError:
            # A store that is yet to be made answers nothing.
            self._store = None

    def stored(self, questions: Iterable[Request]) -> set[str]:
        """The keys of those of `questions` that the store answers."""
        keys = {question.key for question in questions}
        return set(self._store.answers(keys)) if self._store is not None else set()

    def among(self, questions: Sequence[Request]) -> int:
        """How many of `questions` are answered."""
        return len(self.stored(questions) | self._replayed & {question.key for question in questions})

    def replayed(self, task: str, model: str) -> int:
        """How many answers of a task and model the file has, to whatever questions."""
        return self._of[task, model]

    def close(self) -> None:
        """Give the store's connections back."""
        if self._store is not None:
            self._store.close()


def asking(settings: Settings, name: str, answered: Answered) -> Asking:
    """What the task `name` of params.yaml takes.

    Raises:
        InputError: the task or its model is wrong.
    """
    questions = _questions(settings, name)
    asked = settings.synthesize.tasks[name]
    rows, sure = questions.most, asked.input.is_file()
    sample = _sample(questions, rows)
    if not sample:
        return Asking(0, 0, 0, 0, sure)
    if sure:
        known = sum(answered.among(block) for block in batched(sample, _BLOCK)) / len(sample)
    else:
        known = min(1.0, answered.replayed(name, questions.model) / rows)
    # Its first questions are asked although the replay has their answers.
    live = 0 if answered.stored(sample[:1]) else min(asked.live, rows)
    to_ask = max(live, round(rows * (1 - known)))
    characters = sum(len(content) for question in sample for _, content in question.chat) / len(sample)
    tokens = round(to_ask * characters / _CHARACTERS_PER_TOKEN)
    return Asking(rows, to_ask, tokens, to_ask * asked.max_tokens, sure)


def _questions(settings: Settings, name: str) -> Questions:
    engine = engine_of(settings.synthesize, name)
    try:
        return questions_of(settings, name, engine)
    except InputError:
        # A student that is yet to be trained has no name, and has answered nothing.
        return questions_of(settings, name, _Unnamed())


@dataclass(frozen=True)
class _Unnamed:
    model: str = ""

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        raise NotImplementedError("nobody is asked")


def _sample(questions: Questions, rows: int) -> list[Request]:
    """Questions evenly chosen among all; one about a caption of usual length where their table is not there."""
    if not questions.asked.input.is_file():
        return [questions.about(InputRow("", 0, dict.fromkeys(questions.task.inputs, _CAPTION)), 0)]
    return list(_every(questions, max(1, rows // _LOOKED_AT)))


def _every(questions: Questions, step: int) -> Iterator[Request]:
    yield from questions.read(Shard(0, step) if step > 1 else None)
