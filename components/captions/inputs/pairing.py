"""Which two of a pool are compared: pairs grow as its square, so they are drawn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from components.captions.inputs.pool import Pool
from components.captions.inputs.sources import SHOWN
from components.captions.request import Source


def paired(pool: Pool, pairs: int | None, seed: int) -> Iterator[Source]:
    """Sources about two of `pool` each, in the first one's order; the second one's inputs are called `other_<name>`.

    A first one that comes several times has its pairs numbered by `sample`.

    Args:
        pool: what is compared.
        pairs: how many ordered pairs are drawn without replacement, all of them where there are fewer; None draws
            one partner for each.
        seed: draws them.
    """
    drawn = _partners(len(pool), seed) if pairs is None else ordered_pairs(len(pool), pairs, seed)
    for first, group in groupby(drawn, key=itemgetter(0)):
        one = pool[first]
        for sample, (_, second) in enumerate(group):
            other = pool[second]
            others = {f"other_{name}": text for name, text in other.inputs.items() if name != SHOWN}
            yield Source(one.id, sample, {**one.inputs, **others}, other.id, one.pictures + other.pictures)


def _partners(count: int, seed: int) -> Iterator[tuple[int, int]]:
    rng = random.Random(f"caption pairs {seed}")
    if count > 1:
        yield from ((place, (place + rng.randrange(1, count)) % count) for place in range(count))


def ordered_pairs(count: int, wanted: int, seed: int) -> Iterator[tuple[int, int]]:
    """`wanted` of the count x (count - 1) ordered pairs of different numbers below `count`, in rising order.

    Every set of that many is as likely as any other. Memory is 8 bytes for each pair drawn.
    """
    total = count * (count - 1)
    for number in _distinct(total, min(wanted, total), np.random.default_rng(seed)):
        first, place = divmod(int(number), count - 1)
        yield first, place + (place >= first)


def _distinct(total: int, wanted: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """`wanted` different numbers below `total`, in rising order."""
    if wanted > total // 2:
        return np.setdiff1d(np.arange(total), _distinct(total, total - wanted, rng), assume_unique=True)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < wanted:
        drawn = np.union1d(drawn, rng.integers(total, size=wanted - len(drawn)))
    return drawn
