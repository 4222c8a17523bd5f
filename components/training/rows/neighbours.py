"""Which images look alike: hard images for NegCLIP, distractor images for CoN-CLIP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from components.core.errors import InputError
from components.core.metrics import top_k
from components.methods.contract.neighbours import Neighbours
from components.training.rows.sampler import Rows

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class OtherImages:
    """Images that no row is about, to be neighbours of the rows' images.

    Attributes:
        image_ids: of the images.
        features: unit rows `[images, dim]`.
        norms: lengths that raw features have, `[images]`.
    """

    image_ids: list[str]
    features: Vectors
    norms: Vectors

    def raw(self, rows: Rows) -> Tensor:
        """Raw features of these images, `[rows, dim]`."""
        return torch.from_numpy(np.asarray(self.features[rows]) * self.norms[rows, None])


def nearest(features: Vectors, images: Rows, count: int = Neighbours.count) -> Rows:
    """For each row, rows of its `count` most similar other images, `[rows, count]`.

    Args:
        features: unit image features `[images, dim]`.
        images: the image of each row, `[rows]`, the same number wherever it is the same image.

    Raises:
        InputError: there are too few different images.
    """
    distinct, first, inverse = np.unique(images, return_index=True, return_inverse=True)
    _check(len(distinct), count)
    chosen = np.ascontiguousarray(features[distinct])
    best = top_k(chosen, chosen, count + 1)
    rows: Rows = first[_without(best, best == np.arange(len(distinct))[:, None])][inverse]
    return rows


def nearest_among(
    features: Vectors, images: Rows, image_ids: Sequence[str], others: OtherImages, count: int = Neighbours.count
) -> Rows:
    """For each row, the `count` most similar of `others`, `[rows, count]`; the row's own image is none of them.

    Args:
        features: unit image features `[images, dim]`.
        images: the image of each row, `[rows]`.
        image_ids: of the images of `features`.

    Raises:
        InputError: there are too few different images.
    """
    known, first = np.unique(np.array(others.image_ids), return_index=True)
    _check(len(known), count)
    distinct, inverse = np.unique(images, return_inverse=True)
    gallery = np.ascontiguousarray(others.features[first])
    best = top_k(np.ascontiguousarray(features[distinct]), gallery, count + 1)
    own = np.array([image_ids[image] for image in distinct.tolist()])
    rows: Rows = first[_without(best, known[best] == own[:, None])][inverse]
    return rows


def _without(best: Rows, itself: npt.NDArray[np.bool_]) -> Rows:
    """`best` without the place of each row that is `itself`, or without the last."""
    # An image with the same features may stand before the image itself, which is then not in the list at all.
    itself[~itself.any(axis=1), -1] = True
    return best[~itself].reshape(len(best), best.shape[1] - 1)


def _check(distinct: int, count: int) -> None:
    if distinct <= count:
        raise InputError(f"{distinct} different images are too few to draw from {count} neighbours: add rows")
