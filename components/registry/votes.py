"""Blind votes on the results of two encoders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

from components.registry.opinions import LONGEST, Opinions, now, share_interval


class Vote(BaseModel):
    """A person's choice.

    Attributes:
        time: time of the vote, UTC.
        first, second: names of both encoders; the hashes identify their weights.
        choice: the encoder with the better pictures.
        image: name of the picture that the person looked for; empty if none was marked.
    """

    time: str = Field(default_factory=now)
    user: str = Field(max_length=LONGEST)
    query: str = Field(max_length=LONGEST)
    paraphrase: str = Field("", max_length=LONGEST)
    first: str
    first_sha256: str
    second: str
    second_sha256: str
    choice: Literal["first", "second", "tie"]
    image: str = Field("", max_length=LONGEST)


class Wins(BaseModel):
    """How often an encoder won against another, without ties.

    Attributes:
        share: share of votes that the encoder won; one half without votes.
        low, high: its 95% interval (Wilson).
    """

    won: int
    lost: int
    ties: int
    share: float
    low: float
    high: float


class Votes(Opinions[Vote]):
    """The votes in a store; raises InputError if it cannot be reached."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "votes", Vote)


def wins(votes: Sequence[Vote], sha256: str, against: str) -> Wins:
    """Votes for the encoder with weights `sha256` against the one with weights `against`.

    A person's last vote on a query counts.
    """
    about = {
        (vote.user, vote.query): vote for vote in votes if {vote.first_sha256, vote.second_sha256} == {sha256, against}
    }.values()
    ties = sum(vote.choice == "tie" for vote in about)
    won = sum(
        (vote.first_sha256 if vote.choice == "first" else vote.second_sha256) == sha256
        for vote in about
        if vote.choice != "tie"
    )
    lost = len(about) - ties - won
    low, high = share_interval(won, won + lost)
    return Wins(won=won, lost=lost, ties=ties, share=won / (won + lost) if won + lost else 0.5, low=low, high=high)
