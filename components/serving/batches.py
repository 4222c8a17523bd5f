"""Answers the questions of many clients in batches: what waits while one batch is computed is the next one."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from components.serving.answer import Answer
from components.serving.errors import Refusal
from components.serving.limits import Limits
from components.serving.metrics import Metrics
from components.serving.question import Question
from components.serving.served import Served

_LOG = logging.getLogger(__name__)

Outcome = Answer | Refusal


@dataclass(frozen=True, eq=False)
class _Job:
    """A question that waits, and who waits for its answer."""

    question: Question
    future: asyncio.Future[Answer]


class Batcher:
    """One thread that computes; asked from an event loop.

    Args:
        served: the version that answers first; another may be put in its place at any time, and answers the next batch.
    """

    def __init__(self, served: Served, limits: Limits, metrics: Metrics) -> None:
        self.served = served
        self._limits, self._metrics = limits, metrics
        self._jobs: deque[_Job] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._work, name="embed", daemon=True)
        metrics.watch_queue(lambda: self._waiting)

    def start(self) -> None:
        """Begin to compute."""
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, then end; blocks until then."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether it computes."""
        return self._thread.is_alive()

    def submit(self, question: Question) -> asyncio.Future[Answer]:
        """The answer to a question, soon; whoever cancels it drops the question if it still waits.

        The future raises `Refusal` where the version that answers does not take such questions, or fails.

        Raises:
            Refusal: too much waits already.
        """
        job = _Job(question, asyncio.get_running_loop().create_future())
        texts = len(question.texts)
        with self._changed:
            if self._stopping:
                raise Refusal(503, "The server is stopping.", "stopping", retry_after=1)
            if self._waiting + texts > self._limits.queue:
                raise Refusal(429, "The server has too much to do: try again.", "overloaded", retry_after=1)
            self._jobs.append(job)
            self._waiting += texts
            self._changed.notify()
        job.future.add_done_callback(lambda future: self._drop(job) if future.cancelled() else None)
        return job.future

    def _drop(self, job: _Job) -> None:
        self._metrics.dropped.inc()
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self._waiting -= len(job.question.texts)

    def _work(self) -> None:
        while jobs := self._next():
            served = self.served
            outcomes = _outcomes(served, [job.question for job in jobs])
            if answered := sum(len(one.vectors) for one in outcomes if isinstance(one, Answer)):
                self._metrics.batches.observe(answered)
                self._metrics.texts.inc(answered)
            # Once for the batch: waking the event loop costs as much as an answer does.
            jobs[0].future.get_loop().call_soon_threadsafe(_deliver, jobs, outcomes)

    def _next(self) -> list[_Job]:
        """The jobs of the next batch, oldest first; none at the end."""
        with self._changed:
            while not self._jobs and not self._stopping:
                self._changed.wait()
            jobs, texts = list[_Job](), 0
            while self._jobs and (not jobs or texts + len(self._jobs[0].question.texts) <= self._limits.batch):
                jobs.append(self._jobs.popleft())
                texts += len(jobs[-1].question.texts)
            self._waiting -= texts
            return jobs


def _outcomes(served: Served, questions: Sequence[Question]) -> list[Outcome]:
    """An answer or a refusal for each question."""
    refusals = [served.refusal(question) for question in questions]
    good = [question for question, refusal in zip(questions, refusals, strict=True) if refusal is None]
    answers = iter(_answers(served, good))
    return [next(answers) if refusal is None else refusal for refusal in refusals]


def _answers(served: Served, questions: Sequence[Question]) -> list[Outcome]:
    try:
        return list(served.answers(questions)) if questions else []
    except Exception:
        # What one client sent must not cost the others their answers.
        if len(questions) > 1:
            return [outcome for question in questions for outcome in _answers(served, [question])]
        _LOG.exception("a question could not be answered")
        return [Refusal(500, "The server failed to answer.", "internal_error")]


def _deliver(jobs: Sequence[_Job], outcomes: Sequence[Outcome]) -> None:
    for job, outcome in zip(jobs, outcomes, strict=True):
        if job.future.done():
            continue
        if isinstance(outcome, Answer):
            job.future.set_result(outcome)
        else:
            job.future.set_exception(outcome)
