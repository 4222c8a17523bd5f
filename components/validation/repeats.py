"""Rows that say what another row of their table says, wherever in the table that one is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from components.core.settings import Limits
from components.core.words import normalised
from components.validation.checks.near_duplicates import NearDuplicates
from components.validation.joining.answers import Joined
from components.validation.table import Synthesised

_BLOCK = 20_000
_NONE = np.zeros(0, dtype=np.int64)
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Repeated:
    """Numbers of the repeating rows of a shard.

    Attributes:
        exact: every row but the first whose answers all say what another sample of the same pair says.
        near: rows whose last answer is nearly that of an earlier row of the table.
    """

    exact: Rows
    near: Rows


@contextmanager
def find_repeated(joined: Joined, table: Synthesised, limits: Limits) -> Iterator[Callable[[pd.DataFrame], Repeated]]:
    """Yield what finds the repeating rows of a shard; it must be asked about every shard in order.

    Samples of a pair may be any number of shards apart, so a first pass compares them all. It remembers nothing but
    the numbers of the rows that it found.
    """
    exact, last = _exact(joined), table.answers[-1].column
    with ExitStack() as stack:
        near = None
        if limits.near_duplicate is not None:
            near = stack.enter_context(NearDuplicates(limits.near_duplicate))

        def find(shard: pd.DataFrame) -> Repeated:
            first, end = np.searchsorted(exact, [shard["row"].iloc[0], shard["row"].iloc[-1] + 1])
            answered = shard[shard[last].notna()]
            like = _NONE if near is None else near.add(answered["row"].tolist(), answered[last].tolist())
            return Repeated(exact[first:end], like)

        yield find


def _exact(joined: Joined) -> Rows:
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
