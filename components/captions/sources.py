"""Where a prompt task's inputs come from: captions, an earlier task's answers, or captions two at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from more_itertools import unique_everseen

from components.records import GENERATIONS, PAIRS

Inputs = Mapping[str, str]
"""What a question is asked about, by name; the names are column names of the validated tables."""

Accepts = Callable[[Inputs], str | None]
"""Why inputs are not asked about, or None when they are."""

MIN_WORDS, MAX_WORDS = 2, 15


@dataclass(frozen=True)
class Source:
    """Inputs of one question: the pair they belong to, which sample of that pair, and the second pair if any."""

    id: str
    sample: int
    inputs: Inputs
    other_id: str | None = None


Reader = Callable[[Path, Accepts, int, int], list[Source]]
"""Reads a task's table: its path, what the task accepts, how many captions at most, and a seed."""


def read_captions(path: Path, accepts: Accepts, limit: int, _seed: int) -> list[Source]:
    """The first `limit` captions of a `PAIRS` table that the task accepts, as input `caption`."""
    rows = PAIRS.read(path, ["id", "caption"]).to_pylist()
    sources = (Source(row["id"], 0, {"caption": row["caption"]}) for row in rows)
    return [source for source in sources if accepts(source.inputs) is None][:limit]


def read_caption_pairs(path: Path, accepts: Accepts, limit: int, seed: int) -> list[Source]:
    """Each caption of `read_captions` with another one of them, drawn by `seed`: `caption` and `other_caption`.

    PC-CLIP (section 3) compares all pairs of a small pool. Ordered pairs, and as many as captions, keep the number
    of questions linear; no caption meets itself.
    """
    pool = read_captions(path, accepts, limit, seed)
    if len(pool) < 2:
        return []
    rng = random.Random(f"caption pairs {seed}")
    others = [(place + rng.randrange(1, len(pool))) % len(pool) for place in range(len(pool))]
    return [
        Source(one.id, 0, {**one.inputs, "other_caption": pool[other].inputs["caption"]}, pool[other].id)
        for one, other in zip(pool, others, strict=True)
    ]


def read_answers(name: str) -> Reader:
    """Reads the accepted answers that a `GENERATIONS` table has for its first `limit` captions, as input `name`."""

    def read(path: Path, accepts: Accepts, limit: int, _seed: int) -> list[Source]:
        rows = GENERATIONS.read(path, ["id", "sample", "accepted", "text"]).to_pylist()
        kept = set(list(unique_everseen(row["id"] for row in rows))[:limit])
        sources = (
            Source(row["id"], row["sample"], {name: row["text"]})
            for row in rows
            if row["accepted"] and row["id"] in kept
        )
        return [source for source in sources if accepts(source.inputs) is None]

    return read


def short_captions(inputs: Inputs) -> str | None:
    """Accepts captions of 2 to 15 words, as ParaCLIP's released code does.

    Every task that reads captions uses it, so that all of them ask about the same captions and their tables can be
    joined by pair.
    """
    words = len(inputs["caption"].split())
    return None if MIN_WORDS <= words <= MAX_WORDS else f"caption has {words} words, wants {MIN_WORDS} to {MAX_WORDS}"
