"""Blind votes on the results of two encoders, in the SQL store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, Field
from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, insert, select

from components.captions.generating.store.database import Database

LONGEST = 1000
"""Characters of a text in a vote."""
_TABLE = Table(
    "votes",
    MetaData(),
    Column("id", Integer, primary_key=True, autoincrement=True),
    *(
        Column(name, String(LONGEST), nullable=False)
        for name in ("time", "user", "query", "paraphrase", "first", "first_sha256", "second", "second_sha256")
    ),
    Column("choice", String(LONGEST), nullable=False),
    Column("image", String(LONGEST), nullable=False),
)


class Vote(BaseModel):
    """A person's choice.

    Attributes:
        time: time of the vote, UTC.
        first, second: names of both encoders; the hashes identify their weights.
        choice: the encoder with the better pictures.
        image: name of the picture that the person looked for; empty if none was marked.
    """

    time: str = Field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"))
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


class Votes:
    """The votes in a store; raises InputError if it cannot be reached."""

    def __init__(self, url: str, *, must_exist: bool = False) -> None:
        self._database = Database(url, must_exist=must_exist)

    def add(self, vote: Vote) -> None:
        """Store a vote."""

        def write(connection: Connection) -> None:
            _TABLE.create(connection, checkfirst=True)
            connection.execute(insert(_TABLE).values(**vote.model_dump()))

        self._database.write(write)

    def all(self) -> list[Vote]:
        """All votes, oldest first."""

        def read(connection: Connection) -> list[Vote]:
            if not connection.dialect.has_table(connection, _TABLE.name):
                return []
            rows = connection.execute(select(_TABLE).order_by(_TABLE.c.id)).mappings()
            return [Vote(**{name: row[name] for name in Vote.model_fields}) for row in rows]

        return self._database.read(read)

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


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
    if not won + lost:
        return Wins(won=0, lost=0, ties=ties, share=0.5, low=0.0, high=1.0)
    from scipy.stats import binomtest

    low, high = binomtest(won, won + lost).proportion_ci(method="wilson")
    return Wins(won=won, lost=lost, ties=ties, share=won / (won + lost), low=float(low), high=float(high))
