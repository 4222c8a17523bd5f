"""Learning rate, batch size and epochs by the number of training rows, for methods that fine-tune the text tower.

Between the points, logarithms are interpolated: of the values over those of the rows. The first three were measured
on photographs (docs/sampling.md): the largest gain that costs at most a point of recall.
The last is ParaCLIP's own (EACL Findings 2024, section 3.1). Nothing was measured between 20,000 and five million rows,
nor with OpenAI's or LAION's weights: `cliptune tune` tries other values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

POINTS = {
    1_000: (5e-6, 128, 10),
    5_000: (5e-6, 256, 4),
    20_000: (2e-5, 256, 4),
    5_000_000: (5e-7, 3072, 1),
}
"""Rows -> learning rate, batch size, epochs."""
_STEPS = 4
"""Minimum number of steps of an epoch."""


@dataclass(frozen=True)
class TrainingRecipe:
    """Values of an entry of `methods`."""

    lr: float
    batch_size: int
    epochs: int
    warmup_steps: int


def recipe(rows: int, most_batch: int = 3072) -> TrainingRecipe:
    """The values for so many rows; a batch is a power of two of which an epoch has at least four.

    >>> recipe(1_000)
    TrainingRecipe(lr=5e-06, batch_size=128, epochs=10, warmup_steps=7)
    >>> recipe(5_000_000).lr
    5e-07
    """
    lr, batch, epochs = _between(rows)
    size = 1 << int(math.log2(min(batch, most_batch)) + 1e-9)
    # A contrastive batch has two rows or more.
    size = max(2, min(size, 1 << max(0, (rows // _STEPS).bit_length() - 1)))
    whole = max(1, round(epochs))
    steps = max(1, rows // size) * whole
    return TrainingRecipe(float(f"{lr:.2g}"), size, whole, steps // 10)


def _between(rows: int) -> tuple[float, ...]:
    """The values between the nearest points; those of the first or last point beyond."""
    known = sorted(POINTS)
    place = min(max(rows, known[0]), known[-1])
    above = next(point for point in known if point >= place)
    below = max(point for point in known if point <= place)
    if above == below:
        return POINTS[above]
    share = math.log(place / below) / math.log(above / below)
    pairs = zip(POINTS[below], POINTS[above], strict=True)
    return tuple(math.exp((1 - share) * math.log(low) + share * math.log(high)) for low, high in pairs)
