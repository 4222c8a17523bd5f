"""Reviews of the written test queries by people, and the share of queries that are right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from components.core.tables.folders import TEST_SET
from components.registry.opinions import LONGEST, Opinions, now, share_interval
from components.test_sets.written import WrittenQuery, frozen_hash, read_written_queries

ALL = "all"


class Review(BaseModel):
    """A person's verdict on one query.

    Attributes:
        time: time of the review, UTC.
        test_set: hash of the test set, `frozen_hash`.
        caption, query, kind: identify the query in the test set.
    """

    time: str = Field(default_factory=now)
    user: str = Field(max_length=LONGEST)
    test_set: str
    caption: str
    query: str
    kind: str
    verdict: Literal["right", "wrong"]


class Reviewed(BaseModel):
    """The share of a kind of queries that people found right.

    Attributes:
        kind: the kind, or `all`.
        low, high: 95% interval of the share (Wilson).
    """

    kind: str
    read: int
    right: int
    share: float
    low: float
    high: float

    def __str__(self) -> str:
        """The result in one line.

        >>> str(Reviewed(kind="all", read=100, right=97, share=0.97, low=0.915, high=0.99))
        '97 of 100 read test queries are right, 97% [92%, 99%]'
        """
        if not self.read:
            return "no sample of the test queries was read"
        share = f"{self.share:.0%} [{self.low:.0%}, {self.high:.0%}]"
        return f"{self.right} of {self.read} read test queries are right, {share}"


class Reviews(Opinions[Review]):
    """The reviews in a store; raises InputError if it cannot be reached."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "reviews", Review)


def key_of(query: WrittenQuery | Review) -> tuple[str, str, str]:
    """What identifies a query in its test set; texts are cut as the store cuts them."""
    return query.kind, query.caption[:LONGEST], query.query[:LONGEST]


def verdicts(reviews: Iterable[Review], test_set: str) -> dict[tuple[str, str, str], str]:
    """The last verdict on each query of the test set with this hash."""
    return {key_of(review): review.verdict for review in reviews if review.test_set == test_set}


def reviewed(given: dict[tuple[str, str, str], str]) -> list[Reviewed]:
    """The shares of `verdicts` by kind, sorted, and of all queries last; empty without verdicts."""
    kinds = sorted({kind for kind, _, _ in given})
    return [_share(kind, [verdict for key, verdict in given.items() if kind in (key[0], ALL)])
            for kind in [*kinds, *([ALL] if kinds else [])]]  # fmt: skip


def read_reviewed(store: str, folder: Path = TEST_SET) -> Reviewed | None:
    """The share of all queries of the current test set; None without a test set."""
    if not read_written_queries(folder):
        return None
    with closing(Reviews(store)) as reviews:
        shares = reviewed(verdicts(reviews.all(), frozen_hash(folder)))
    return shares[-1] if shares else _share(ALL, [])


def _share(kind: str, given: Sequence[str]) -> Reviewed:
    right = given.count("right")
    low, high = share_interval(right, len(given))
    share = right / len(given) if given else 0.0
    return Reviewed(kind=kind, read=len(given), right=right, share=share, low=low, high=high)
