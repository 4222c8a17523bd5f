"""A language model that several experiments share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from components.captions.prompting.request import Reply, Request
from research.experiments.parts.judge import Judge


@dataclass
class ScriptedModel:
    """Answers each request with `reply` of it, or fails where that is None; keeps the requests."""

    reply: Callable[[Request], str | None]
    asked: list[Request] = field(default_factory=list)
    model: str = "scripted"

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        for request in requests:
            self.asked.append(request)
            text = self.reply(request)
            yield [Reply(request, text, "silent" if text is None else None)]

    def judge(self, folder: Path) -> Judge:
        return Judge(self, f"sqlite:///{folder}/store.db")
