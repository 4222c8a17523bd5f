"""What an engine promises: replies to requests, in batches, as they are done."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from components.captions.request import Reply, Request


class Engine(Protocol):
    """Something that answers requests."""

    @property
    def model(self) -> str:
        """Identifies the weights that answer; part of every key of the store. Known without loading them."""
        ...

    def answer(self, requests: Iterable[Request]) -> Iterator[list[Reply]]:
        """Yield batches of replies in any order, every request once, as soon as they are there.

        `requests` is lazy: taking the next one claims it for this process and may block, so an engine takes only what
        it can soon work on. A request that cannot be answered is a reply with a failure; an error is raised only
        where going on is pointless (no server answers, wrong model name, missing key).

        Raises:
            InputError: the engine cannot work as params.yaml describes it.
        """
        ...
