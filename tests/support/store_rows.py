"""Requests and replies for tests of the store."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from components.captions.prompting.request import Reply, Request, Sampling
from components.registry.votes import Vote, Votes

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


def vote(user: str) -> Vote:
    return Vote(user=user, query="q", first="a", first_sha256="x", second="b", second_sha256="y", choice="tie")


def old_store(answers: Path, user: str) -> None:
    """A store of answers with a person's vote, as earlier versions kept it."""
    answers.parent.mkdir(parents=True, exist_ok=True)
    with closing(Votes(f"sqlite:///{answers.parent / 'votes.db'}")) as votes:
        votes.add(vote(user))
    (answers.parent / "votes.db").rename(answers)
