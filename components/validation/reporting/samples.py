"""Rows that stand for a whole table in its reports; which ones does not depend on how the table is cut into shards."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

DOCUMENTED = 10_000
"""Rows of a table that its Data Docs look at, at most."""

MOST_REASONS = 200
"""Reasons of a table that its reports name, at most: reasons may hold text from outside."""

_EXAMPLES = 5


def sample_rows(rows: int, most: int = DOCUMENTED) -> npt.NDArray[np.int64]:
    """Numbers of `most` of the rows, each as likely as any other, sorted; of all rows when there are no more."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(0).choice(rows, most, replace=False)).astype(np.int64)


@dataclass(frozen=True)
class Example:
    """A rejected row: its pair and sample, its texts by column, and every reason that applied."""

    row: int
    id: str
    sample: int
    texts: Mapping[str, str]
    reasons: tuple[str, ...]


@dataclass
class Examples:
    """A few rejected rows for each reason, each as likely as any other with that reason.

    Only the first `MOST_REASONS` reasons that occur get examples.
    """

    _kept: dict[str, list[tuple[int, int, Example]]] = field(default_factory=dict)

    def add(self, examples: Iterable[Example]) -> None:
        """Consider rejected rows."""
        for example in examples:
            place = _place(example.row)
            for reason in example.reasons:
                kept = self._kept.get(reason)
                if kept is None and len(self._kept) >= MOST_REASONS:
                    continue
                kept = self._kept.setdefault(reason, [])
                heapq.heappush(kept, (-place, -example.row, example))
                if len(kept) > _EXAMPLES:
                    heapq.heappop(kept)

    def of(self, reason: str) -> list[Example]:
        """The examples of a reason, in the order of the table."""
        return sorted((example for *_, example in self._kept.get(reason, [])), key=lambda example: example.row)


def _place(row: int) -> int:
    """A place in an order of chance that is the same in every run."""
    return int.from_bytes(hashlib.blake2b(row.to_bytes(8, "big"), digest_size=8).digest(), "big")
