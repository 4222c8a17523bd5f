"""Requests and replies for tests of the store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from components.captions.prompting.request import Reply, Request, Sampling
from components.registry.reviews import FILE, Review, Reviews

SAMPLING = Sampling(1.0, 0.1, 40)


def request(text: str = "a dog", attempt: int = 0, model: str = "m", task: str = "paraphrase_1") -> Request:
    return Request(task, (("user", text),), model, SAMPLING, attempt)


def requests(count: int) -> list[Request]:
    return [request(f"question {number}") for number in range(count)]


def replies(asked: Iterable[Request], answer: str = "an answer") -> list[Reply]:
    return [Reply(one, answer) for one in asked]


def failures(asked: Iterable[Request], reason: str = "HTTP 500") -> list[Reply]:
    return [Reply(one, None, reason) for one in asked]


def keys(asked: Iterable[Request]) -> list[str]:
    return [one.key for one in asked]


def old_store(file: Path, user: str) -> None:
    """A database with a person's review, as earlier versions kept it among answers or votes."""
    file.parent.mkdir(parents=True, exist_ok=True)
    texts = {"caption": "a dog", "query": "one dog", "kind": "swap"}
    with closing(Reviews(f"sqlite:///{file.parent / 'new' / 'any.db'}")) as reviews:
        reviews.add(Review(user=user, test_set="t", verdict="right", **texts))
    (file.parent / "new" / FILE).rename(file)
    (file.parent / "new").rmdir()
