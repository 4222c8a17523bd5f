"""An engine that answers by a function, and keeps what it was asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from more_itertools import batched

from components.captions.prompting.request import Reply, Request


class FakeEngine:
    """Answers in batches of `batch`; a question without a text fails; after `die_after` questions it is killed."""

    def __init__(
        self, text: Callable[[Request], str | None], model: str = "fake", batch: int = 1, die_after: int = 10**6
    ) -> None:
        self.text, self.model, self.batch, self.die_after = text, model, batch, die_after
        self.asked: list[Request] = []

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for batch in batched(requests, self.batch):
            if len(self.asked) >= self.die_after:
                raise RuntimeError("killed")
            self.asked += batch
            yield [self._reply(request) for request in batch]

    def _reply(self, request: Request) -> Reply:
        text = self.text(request)
        return Reply(request, text, "HTTP 500 after 3 attempts" if text is None else None)


def quoted(request: Request) -> list[str]:
    """The texts that the last message quotes, or the whole message."""
    last = request.messages[-1]["content"]
    return re.findall(r'"([^"]*)"', last) or [last]
