"""Every question that the store has no answer to is put to an engine, by one worker only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from more_itertools import batched

from components.captions.asking.claims import Claims
from components.captions.asking.writing import Writer
from components.captions.engine import Engine
from components.captions.request import Reply, Request
from components.captions.store import GenerationStore
from components.core.progress import bar

_BLOCK = 256
"""Questions looked up and claimed together: few statements, and little that a dead worker keeps from others."""
_MANY_WAITING = 16 * _BLOCK
_POLL = 0.5

Update = Callable[[int], object]
"""Moves a progress bar on by a number of questions."""


@dataclass
class Asked:
    """What became of the questions of a run; one that occurs twice counts as replayed the second time."""

    replayed: int = 0
    generated: int = 0
    failed: int = 0


def ask(store: GenerationStore, engine: Engine, requests: Iterable[Request], title: str, total: int | None) -> Asked:
    """Have `engine` answer what is unanswered, each reply stored as it comes, and wait for what other workers ask.

    Memory does not grow with the number of requests. When it returns, every request has an answer in the store or a
    failure there; killed at any time, a second run asks only what has no answer yet.

    Args:
        store: where answers are looked up and kept; other workers may share it.
        engine: who answers.
        requests: the questions; read once, in order.
        title: name of the progress bar.
        total: how many questions there may be, for the bar.

    Raises:
        InputError: the engine cannot work, or the store cannot be reached.
    """
    with store.claims() as claims, bar(title, total, "question") as progress:
        run = _Run(store, claims, store.now())
        _answer(run, engine, run.first_pass(requests, progress.update), progress.update)
        while run.elsewhere:
            taken = run.second_look(progress.update)
            if taken:
                _answer(run, engine, taken, progress.update)
            elif run.elsewhere:
                time.sleep(_POLL)
    return run.asked


def _answer(run: _Run, engine: Engine, requests: Iterable[Request], update: Update) -> None:
    with Writer(run.store, run.settle) as writer:
        for replies in engine.answer(requests):
            writer.put(replies)
            update(len(replies))


@dataclass
class _Run:
    """Which questions are whose.

    Attributes:
        own: keys that this worker took and that have no stored reply yet.
        elsewhere: questions that another worker has taken.
    """

    store: GenerationStore
    claims: Claims
    started: datetime
    asked: Asked = field(default_factory=Asked)
    own: set[str] = field(default_factory=set)
    elsewhere: dict[str, Request] = field(default_factory=dict)

    def first_pass(self, requests: Iterable[Request], update: Update) -> Iterator[Request]:
        """The questions that are this worker's to ask; never waits for others, who may be waiting for this one."""
        for block in batched(requests, _BLOCK):
            distinct = {request.key: request for request in block}
            unasked = self._settle({key: request for key, request in distinct.items() if key not in self.own})
            taken = self._take(unasked)
            self.elsewhere |= {key: request for key, request in unasked.items() if key not in self.own}
            known = len(block) - len(unasked)
            self.asked.replayed += known
            update(known)
            yield from taken
            if len(self.elsewhere) > _MANY_WAITING:
                self._settle_elsewhere(update)

    def settle(self, replies: Sequence[Reply]) -> None:
        """Count replies that are stored."""
        self.own.difference_update(reply.request.key for reply in replies)
        failed = sum(reply.answer is None for reply in replies)
        self.asked.failed += failed
        self.asked.generated += len(replies) - failed

    def second_look(self, update: Update) -> list[Request]:
        """The questions that another worker gave up and that are now this one's."""
        self._settle_elsewhere(update)
        taken = self._take(self.elsewhere)
        for request in taken:
            del self.elsewhere[request.key]
        return taken

    def _settle_elsewhere(self, update: Update) -> None:
        before = len(self.elsewhere)
        self.elsewhere = self._settle(self.elsewhere)
        done = before - len(self.elsewhere)
        self.asked.replayed += done
        update(done)

    def _settle(self, requests: dict[str, Request]) -> dict[str, Request]:
        """Those of `requests` that have neither an answer nor a failure of this run."""
        unknown = list(requests)
        answered = self.store.answers(unknown)
        unknown = [key for key in unknown if key not in answered]
        failed = self.store.failures(unknown, self.started)
        return {key: requests[key] for key in unknown if key not in failed}

    def _take(self, requests: dict[str, Request]) -> list[Request]:
        taken = self.claims.take(list(requests)) if requests else set()
        self.own |= taken
        return [request for key, request in requests.items() if key in taken]
