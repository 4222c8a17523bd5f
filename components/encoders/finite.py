"""Refuses features that are NaN or infinite, which would rank first in every metric."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from components.core.errors import InputError

_ROWS = 1 << 14
"""Rows looked at together, so that a memory-mapped file need not fit into memory."""


def non_finite_row(features: npt.NDArray[np.float32]) -> int | None:
    """Number of the first row of `[rows, dim]` that is not finite; None where all are."""
    for start in range(0, len(features), _ROWS):
        bad = ~np.isfinite(features[start : start + _ROWS]).all(axis=1)
        if bad.any():
            return start + int(bad.argmax())
    return None


def require_finite(features: npt.NDArray[np.float32], encoder: str, kind: str, names: Sequence[str]) -> None:
    """Refuse features that are not finite.

    Args:
        features: `[rows, dim]`.
        encoder: its name.
        kind: what a row is of, such as "picture".
        names: of what each row is of `[rows]`.

    Raises:
        InputError: a row is not finite; the message has its name and the encoder's.
    """
    row = non_finite_row(features)
    if row is not None:
        raise InputError(
            f"encoder '{encoder}' gives {kind} '{names[row]}' a feature that is not finite (NaN or infinite): its "
            "weights are damaged, so train it again or fetch it again"
        )
