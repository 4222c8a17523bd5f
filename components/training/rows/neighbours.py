"""Which images look alike: hard images for NegCLIP, distractor images for CoN-CLIP."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from components.core.errors import InputError
from components.core.metrics import top_k
from components.training.rows.sampler import Rows

NEIGHBOURS = 3
"""How many nearest images a row's neighbour is drawn from, as NegCLIP draws it."""


def nearest(features: npt.NDArray[np.float32], images: Rows, count: int = NEIGHBOURS) -> Rows:
    """For each row, rows of its `count` most similar other images, `[rows, count]`.

    Args:
        features: unit image features `[images, dim]`.
        images: the image of each row, `[rows]`, the same number wherever it is the same image.

    Raises:
        InputError: there are too few different images.
    """
    distinct, first, inverse = np.unique(images, return_index=True, return_inverse=True)
    if len(distinct) <= count:
        raise InputError(f"{len(distinct)} different images are too few to draw from {count} neighbours: add rows")
    chosen = np.ascontiguousarray(features[distinct])
    best = top_k(chosen, chosen, count + 1)
    # An image with the same features may stand before the image itself, which is then not in the list at all.
    itself = best == np.arange(len(distinct))[:, None]
    itself[~itself.any(axis=1), -1] = True
    others = best[~itself].reshape(len(distinct), count)
    rows: Rows = first[others][inverse]
    return rows
