"""What became of the votes: who won how often, and rows for paraphrased retrieval."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from components.core.files import atomic_file
from components.registry.votes import Vote, Wins, wins


class Standing(BaseModel):
    """How one encoder fared against another; both of a pair are told."""

    encoder: str
    against: str
    wins: Wins


def standings(votes: Sequence[Vote]) -> list[Standing]:
    """All pairs that were voted on, those with most votes first; weights of one name that differ are told apart."""
    names, pairs = dict[str, str](), dict[tuple[str, str], int]()
    for vote in votes:
        names |= {vote.first_sha256: vote.first, vote.second_sha256: vote.second}
        low, high = sorted((vote.first_sha256, vote.second_sha256))
        pairs[low, high] = pairs.get((low, high), 0) + 1
    called = {
        sha256: name if list(names.values()).count(name) == 1 else f"{name} {sha256[:8]}"
        for sha256, name in names.items()
    }
    found = []
    for low, high in sorted(pairs, key=lambda pair: -pairs[pair]):
        for one, other in ((low, high), (high, low)):
            found.append(Standing(encoder=called[one], against=called[other], wins=wins(votes, one, other)))
    return found


def write_captions(votes: Sequence[Vote], path: Path) -> int:
    """Write `captions.tsv` as source `folder` reads it; returns its rows.

    Every query whose picture a person marked is a test caption of that picture, its other wording the paraphrase that
    paraphrased retrieval is scored on.
    """
    rows = dict.fromkeys((vote.image, vote.query, vote.paraphrase) for vote in votes if vote.image and vote.paraphrase)
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("image", "caption", "paraphrase", "split"))
        writer.writerows((_flat(image), _flat(query), _flat(other), "test") for image, query, other in rows)
    return len(rows)


def _flat(text: str) -> str:
    return " ".join(text.split())
