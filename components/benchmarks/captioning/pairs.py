"""Pairs of pictures with the sentences that say how the second differs from the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.benchmarks.encoding.picture_source import Picture


@dataclass(frozen=True)
class PicturePair:
    """Two pictures and what people, or a generator that knows it, say of their difference.

    Attributes:
        before: the first picture.
        after: the second.
        sentences: one and more about what is new, gone or other in `after`.
    """

    before: Picture
    after: Picture
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class PairSets:
    """The splits of a data set.

    Attributes:
        train: what the captioner learns from.
        val: what says when it has learned enough.
        test: what it is scored on.
    """

    train: Sequence[PicturePair]
    val: Sequence[PicturePair]
    test: Sequence[PicturePair]
