"""A language model that judges: asked through the project's engines, its answers kept so that none is asked for twice.

The user names it with the option `judge`: a key of `synthesize.models` in params.yaml, such as one with
`engine: server` for any OpenAI-compatible endpoint. Answers are kept in `synthesize.store`, beside those of all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from components.benchmarks.encoding.published_context import PublishedContext
from components.captions.asking.asking import ask
from components.captions.engine import Engine
from components.captions.request import Chat, Picture, Request, Sampling
from components.captions.store import GenerationStore
from components.core.errors import InputError
from components.core.metrics import Indices, Reals

OPTION = {"judge": "who judges: a key of synthesize.models in params.yaml"}
"""For `Benchmark.options`."""
_SAMPLING = Sampling(temperature=0.0, top_p=1.0, max_tokens=512)


@dataclass(frozen=True)
class Question:
    """What a judge is asked once; see `Request` for how messages mark pictures."""

    messages: Chat
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Judge:
    """Who judges, and where the answers are kept.

    Attributes:
        engine: answers.
        store: SQLAlchemy URL of the generation store.
    """

    engine: Engine
    store: str

    def answers(self, task: str, questions: Sequence[Question]) -> list[str | None]:
        """The answer to each question; None where the engine could not give one.

        Raises:
            InputError: the engine cannot work, or the store cannot be reached.
        """
        requests = [self._request(task, question) for question in questions]
        store = GenerationStore(self.store)
        try:
            ask(store, self.engine, requests, f"{task}: judge", len(requests))
            found = store.answers(request.key for request in requests)
        finally:
            store.close()
        return [found.get(request.key) for request in requests]

    def _request(self, task: str, question: Question) -> Request:
        chat = tuple((message["role"], message["content"]) for message in question.messages)
        return Request(task, chat, self.engine.model, _SAMPLING, 0, question.pictures)


def judge_of(context: PublishedContext) -> Judge:
    """The judge that the user chose.

    Raises:
        InputError: nobody was chosen, or params.yaml does not know the name.
    """
    chosen = context.options.get("judge")
    if isinstance(chosen, Judge):
        return chosen
    if not chosen:
        raise InputError(
            "this benchmark needs a judge: give --option judge=<a key of synthesize.models in params.yaml>"
        )
    from components.captions.engines import make_engine
    from components.core.settings import load_settings

    settings = load_settings().synthesize
    return Judge(make_engine(settings, str(chosen)), settings.store)


def judged(
    context: PublishedContext, task: str, questions: Sequence[Question], score: Callable[[str], float | None]
) -> tuple[Reals, Indices]:
    """Scores of the questions that have a usable answer, and which these are; `[answered]` both.

    Args:
        context: names the judge, and says whether some answers may be unusable.
        task: what the questions are called in the store.
        questions: at least one.
        score: reads an answer; None for one that says no score.

    Raises:
        InputError: no answer is usable, or some are not and `allow_partial` is off.
    """
    judge = judge_of(context)
    answers = judge.answers(task, questions)
    found = [None if answer is None else score(answer) for answer in answers]
    usable = [row for row, value in enumerate(found) if value is not None]
    if not usable:
        raise InputError(f"judge {judge.engine.model} gave no usable score: choose a larger model with --option judge=")
    if len(usable) < len(found):
        context.amiss(f"judge {judge.engine.model}: {len(found) - len(usable):,} of {len(found):,} scores are unusable")
    return np.array([found[row] for row in usable], dtype=np.float64), np.array(usable, dtype=np.int64)
