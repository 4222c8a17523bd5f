"""Which rows make up which batch: a function of seed and epoch, so that a resumed run continues exactly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.core.errors import InputError
from components.methods.contract.visits import Visits

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sampler:
    """Batches of row numbers.

    An epoch visits every group once, by one of its rows drawn at random. The partial last batch is dropped.

    Attributes:
        groups: the group of each row, `[rows]`, see `groups_of`.
        batch_size: of the global batch.
        seed: draws the order.
    """

    groups: Rows
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return len(np.unique(self.groups)) // self.batch_size

    def check(self, what: str) -> None:
        """Raise `InputError` when there are too few rows for a single batch."""
        if self.steps_per_epoch == 0:
            distinct = len(np.unique(self.groups))
            raise InputError(
                f"{what} visits {distinct} rows in an epoch, fewer than batch_size {self.batch_size}: lower it"
            )

    def epoch(self, epoch: int) -> list[Rows]:
        """The batches of one epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        shuffled = rng.permutation(len(self.groups))
        _, first = np.unique(self.groups[shuffled], return_index=True)
        rows = rng.permutation(shuffled[first])
        size = self.batch_size
        return [rows[start * size : (start + 1) * size] for start in range(self.steps_per_epoch)]


def groups_of(visits: Visits, images: Rows, pairs: Iterable[Rows]) -> Rows:
    """The group of each row, `[rows]`.

    Args:
        images: the image of each row, `[rows]`.
        pairs: the pair of each row, and the other pair where rows are about two, `[rows]` each.
    """
    if visits == "rows":
        return np.arange(len(images), dtype=np.int64)
    if visits == "images":
        return images
    groups = np.zeros_like(images)
    for part in pairs:
        groups = groups * (part.max(initial=0) + 1) + part
    return groups
