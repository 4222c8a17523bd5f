"""Judge: a language model behind one of the project's engines that scores pictures or texts.

The option `judge` names the language model: a key of `synthesize.llms` in params.yaml, such as one with
`engine: server` for any OpenAI-compatible endpoint. Answers are cached in `synthesize.store` with those of all tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from components.captions.generating.asking import ask
from components.captions.generating.engines import Engine
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Chat, Request, Sampling, ShownPicture
from components.core.compute.metrics import Indices, Reals
from components.core.system.errors import InputError
from components.evaluation.scoring.published_context import PublishedContext

OPTION = {"judge": "the judge: a key of synthesize.llms in params.yaml"}
"""For `Benchmark.options`."""
_SAMPLING = Sampling(temperature=0.0, top_p=1.0, max_tokens=512)


@dataclass(frozen=True)
class JudgeQuestion:
    """One question to a judge; see `Request` for how messages mark pictures."""

    messages: Chat
    pictures: tuple[ShownPicture, ...] = ()


@dataclass(frozen=True)
class Judge:
    """A language model behind an engine; `store` is the SQLAlchemy URL of the store of its answers."""

    engine: Engine
    store: str

    def answers(self, task: str, questions: Sequence[JudgeQuestion]) -> list[str | None]:
        """The answer to each question; None if the engine returned none."""
        requests = [self._request(task, question) for question in questions]
        with closing(GenerationStore(self.store)) as store:
            ask(store, self.engine, requests, f"{task}: judge", len(requests))
            answers = store.answers(request.key for request in requests)
        return [answers.get(request.key) for request in requests]

    def _request(self, task: str, question: JudgeQuestion) -> Request:
        chat = tuple((message["role"], message["content"]) for message in question.messages)
        return Request(task, chat, self.engine.model, _SAMPLING, 0, question.pictures)


def judge_of(context: PublishedContext) -> Judge:
    """The judge of the option `judge`."""
    chosen = context.options.get("judge")
    if isinstance(chosen, Judge):
        return chosen
    if not chosen:
        raise InputError(
            "this benchmark needs a judge: give --benchmark-option judge=<a key of synthesize.llms in params.yaml>"
        )
    from components.captions.generating.engines import make_engine
    from components.core.settings import load_settings

    settings = load_settings().synthesize
    return Judge(make_engine(settings, str(chosen)), settings.store)


def judged(
    context: PublishedContext, task: str, questions: Sequence[JudgeQuestion], score: Callable[[str], float | None]
) -> tuple[Reals, Indices]:
    """Scores and numbers of the questions with a usable answer, `[answered]` both; `score` parses an answer."""
    judge = judge_of(context)
    answers = judge.answers(task, questions)
    scores = [None if answer is None else score(answer) for answer in answers]
    usable = [row for row, value in enumerate(scores) if value is not None]
    if not usable:
        raise InputError(
            f"judge {judge.engine.model} returned no usable score: choose a larger model with --benchmark-option judge="
        )
    if len(usable) < len(scores):
        count = f"{len(scores) - len(usable):,} of {len(scores):,}"
        context.deviates(f"judge {judge.engine.model}: {count} scores are unusable")
    return np.array([scores[row] for row in usable], dtype=np.float64), np.array(usable, dtype=np.int64)
