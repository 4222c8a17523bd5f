"""Similarities of features row by row, and rows by group: what two-way choices are scored with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from components.core.metrics import Features, Indices, Reals, finite


def row_cosine(first: Features, second: Features) -> Features:
    """Cosine similarity of each row of `first` with the same row of `second`, both unit features `[rows, dim]`.

    Equal features have equal similarities to the last bit, so ties are seen.

    Returns:
        `[rows]`.
    """
    finite(first, second)
    return np.asarray(np.einsum("nd,nd->n", first, second), dtype=np.float32)


def at_least(scores: Features, others: Features) -> Reals:
    """1 where `scores` reaches `others`, else 0: a tie is right."""
    finite(scores, others)
    return (scores >= others).astype(np.float64)


def group_numbers(labels: Sequence[str]) -> Indices:
    """Number of each row's group `[rows]`; groups are numbered from 0 in the order of their sorted labels."""
    return np.unique(np.array(labels, dtype=np.str_), return_inverse=True)[1].astype(np.int64)
