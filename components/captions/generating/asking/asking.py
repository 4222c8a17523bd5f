"""Sends unanswered questions to an engine and stores each reply as it arrives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import Empty, Queue
from threading import Thread
from types import TracebackType
from typing import Self

from more_itertools import batched

from components.captions.generating.engines import Engine
from components.captions.generating.store import GenerationStore
from components.captions.prompting.request import Reply, Request
from components.core.system.progress import bar

_BLOCK = 256
"""Questions looked up in the store together."""
WAITING = 2
"""Batches that may wait while others are stored: enough to hide a commit, and little is lost with the process."""


@dataclass
class SynthesisCounts:
    """Results of a run, by number of questions.

    Attributes:
        replayed: already answered; includes the second occurrence of a question in one run.
        generated: newly answered.
        failed: without an answer.
        rejected: answered, but the answer cannot be used.
        skipped: rows of inputs that the task does not accept.
    """

    replayed: int = 0
    generated: int = 0
    failed: int = 0
    rejected: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in vars(self).items())

    def __add__(self, other: SynthesisCounts) -> SynthesisCounts:
        return SynthesisCounts(**{name: count + getattr(other, name) for name, count in vars(self).items()})


def ask(
    store: GenerationStore, engine: Engine, requests: Iterable[Request], title: str, total: int | None
) -> SynthesisCounts:
    """Have `engine` answer every request that has no stored answer, and store each reply as it arrives.

    Memory does not grow with the number of requests. When it returns, the store has an answer or a failure for every
    request; after a kill, a second run sends only the requests that have no answer yet. Workers may share the store:
    an answer is never stored twice, but two that send the same question at the same time both pay for it.

    Args:
        store: where answers are looked up and stored.
        engine: generates the answers.
        requests: the questions; read once, in order.
        title: name of the progress bar.
        total: upper bound of the number of questions, for the bar.

    Raises:
        InputError: the engine cannot work, or the store cannot be reached.
    """
    counts = SynthesisCounts()
    with bar(title, total, "question") as progress, ReplyWriter(store) as writer:

        def unanswered() -> Iterator[Request]:
            for block in batched(requests, _BLOCK):
                new = {request.key: request for request in block if not writer.has_seen(request.key)}
                for key in store.answers(new):
                    del new[key]
                writer.pending.update(new)
                counts.replayed += len(block) - len(new)
                progress.update(len(block) - len(new))
                yield from new.values()

        for replies in engine.answer(unanswered()):
            writer.put(replies)
            progress.update(len(replies))
            failed = sum(reply.answer is None for reply in replies)
            counts.failed += failed
            counts.generated += len(replies) - failed
    return counts


class ReplyWriter:
    """Stores batches of replies in order from a thread of its own; batches that wait share one transaction.

    As a context manager; leaving it waits until everything is stored, even after an error in the block.

    Attributes:
        pending: keys of questions whose replies are not stored yet.
    """

    def __init__(self, store: GenerationStore) -> None:
        self.pending: set[str] = set()
        self._failed: set[str] = set()
        self._store = store
        self._batches: Queue[Sequence[Reply] | None] = Queue(WAITING)
        self._error: Exception | None = None
        self._thread = Thread(target=self._write, name="store", daemon=True)

    def has_seen(self, key: str) -> bool:
        """Whether a question is pending or failed in this run."""
        return key in self.pending or key in self._failed

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def put(self, replies: Sequence[Reply]) -> None:
        """Queue replies for storing.

        Raises:
            InputError: earlier replies could not be stored.
        """
        self._check()
        self._batches.put(replies)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the last transaction; raises its error unless the block has raised one."""
        self._batches.put(None)
        self._thread.join()
        if error is None:
            self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        while (batch := self._batches.get()) is not None:
            replies, ended = list(batch), False
            # Bounded: an engine that answers at once would otherwise put everything into one transaction.
            for _ in range(WAITING):
                try:
                    more = self._batches.get_nowait()
                except Empty:
                    break
                if more is None:
                    ended = True
                    break
                replies += more
            self._store_all(replies)
            if ended:
                return

    def _store_all(self, replies: Sequence[Reply]) -> None:
        """After an error nothing more is stored; the queue is still emptied, so that `put` cannot block for ever."""
        if self._error is not None:
            return
        try:
            self._store.add(replies)
        except Exception as error:
            self._error = error
            return
        self._failed.update(reply.request.key for reply in replies if reply.answer is None)
        self.pending.difference_update(reply.request.key for reply in replies)
