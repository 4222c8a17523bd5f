"""What an engine promises: answers to requests, in batches, as they are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from components.captions.store import Request


class Engine(Protocol):
    """Something that answers chat requests."""

    @property
    def model(self) -> str:
        """Identifies the weights that answer; part of every key of the store. Known without loading them."""
        ...

    def answer(self, requests: Sequence[Request]) -> Iterator[list[tuple[Request, str]]]:
        """Yield batches of (request, answer) in any order, every request once."""
        ...
