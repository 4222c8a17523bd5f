"""Requests and replies for tests of the store."""

from __future__ import annotations

from collections.abc import Iterable

from components.captions.prompting.request import Reply, Request, Sampling

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
