"""Rows that say what an earlier sample of their pair says, wherever in the table that one is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.words import normalised
from components.validation.joining.answers import Joined

_BLOCK = 20_000
Rows = npt.NDArray[np.int64]


def repeated_rows(joined: Joined) -> Rows:
    """Numbers of every row but the first whose answers all say what another sample of the same pair says, sorted.

    Samples of a pair may be any number of shards apart, so all are compared before the first shard. Memory holds
    nothing but the numbers of the rows that were found.
    """
    repeats = joined.repeats()
    for rows in repeats.candidates(_BLOCK):
        repeats.note([number for number, *_ in rows], [_words(said) for _, *said in rows])
    return repeats.found()


def _words(texts: Iterable[Any]) -> bytes:
    """A digest that is the same for answers that say the same letters of the same pair; the pair's id comes first."""
    identity, *answers = texts
    digest = hashlib.blake2b(digest_size=16)
    for part in (str(identity), *map(normalised, answers)):
        raw = part.encode("utf-8")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.digest()
