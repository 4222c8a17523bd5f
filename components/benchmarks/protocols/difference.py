"""Difference-based classification: does the difference of two images point where a text about it does (PC-CLIP, 3.3)?

Pure functions on features, which know nothing of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from components.core.metrics import Features, Indices, Reals, finite

SEEDS = 5
"""Draws that are averaged (PC-CLIP, table 1)."""
DRAWN = 100
"""Images of a draw, all pairs of which are judged (appendix A.4)."""
Ties = Literal["right", "wrong"]


@dataclass(frozen=True)
class Pooled:
    """The runs of several seeds as one list of queries.

    Attributes:
        values: one value per pair, seed after seed `[pairs]`.
        seeds: the run of each pair `[pairs]`; the mean of the runs' means is the published figure.
        pictures: the two pictures of each pair `[pairs, 2]`.
        standard_error: of the runs' means.
    """

    values: Reals
    seeds: Indices
    pictures: Indices
    standard_error: float


def difference_features(first: Features, second: Features) -> Features:
    """Unit vectors of `first - second`, all `[pairs, dim]`; zeros where the two are the same."""
    finite(first, second)
    difference = first.astype(np.float64) - second
    length = np.linalg.norm(difference, axis=1, keepdims=True)
    return np.asarray(difference / np.where(length == 0, 1, length), dtype=np.float32)


def margins(first: Features, second: Features, texts: Features) -> Features:
    """Cosine of each text with the difference of its two images `[pairs]`; inputs are `[pairs, dim]`, unit vectors."""
    finite(texts)
    return np.asarray(np.einsum("nd,nd->n", difference_features(first, second), texts), dtype=np.float32)


def classified(found: Features, ties: Ties) -> Reals:
    """1 where the margin puts the two images in the right order, else 0 `[pairs]`.

    Args:
        found: `margins`, `[pairs]`.
        ties: what a margin of zero is: `right` by equation 2 of the paper (>=), `wrong` in the released code (>).
    """
    finite(found)
    return (found >= 0 if ties == "right" else found > 0).astype(np.float64)


def drawn(items: int, count: int, seed: int) -> Indices:
    """`count` of `items` numbers without repetition, or all where there are fewer, in the order drawn.

    The generator is the one of the released code, so that the draw is the published one.
    """
    import torch

    order = torch.randperm(items, generator=torch.Generator().manual_seed(seed))
    return np.asarray(order[:count].numpy(), dtype=np.int64)


def unlike_pairs(chosen: Indices, groups: Indices) -> Indices:
    """All pairs of `chosen` items of different groups `[pairs, 2]`; what was drawn earlier stands first.

    Args:
        chosen: items in the order drawn `[drawn]`.
        groups: group of every item `[items]`.
    """
    first, second = np.triu_indices(len(chosen), k=1)
    pairs = np.stack([chosen[first], chosen[second]], axis=1)
    return np.asarray(pairs[groups[pairs[:, 0]] != groups[pairs[:, 1]]], dtype=np.int64)


def pooled(runs: Sequence[Reals], pictures: Sequence[Indices]) -> Pooled:
    """The runs of several seeds, `[pairs]` each and none empty, with the two pictures of each pair `[pairs, 2]`.

    The standard error divides the deviation by n, not n - 1, as the released code does.
    """
    finite(*runs)
    means = np.array([run.mean() for run in runs])
    seeds = np.repeat(np.arange(len(runs), dtype=np.int64), [len(run) for run in runs])
    return Pooled(np.concatenate(runs), seeds, np.concatenate(pictures), float(means.std() / np.sqrt(len(means))))
