"""Losses that keep features near those of the base encoder, and the columns that hold the base's.

Each loss is this rank's part, like those of `losses`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from components.training.methods.contract.losses import Feature, Features

if TYPE_CHECKING:
    from torch import Tensor

BASE = "base."
"""Prefix of a column's features as the base encoder computes them, such as `base.caption`."""

_SMALLEST = 1e-12
"""Least squared distance, below which a distance has no gradient: the root's is infinite at zero."""


def retention(features: Features) -> Tensor:
    """The mean of `instance_distance` over all columns that have the base's features."""
    import torch

    columns = [name.removeprefix(BASE) for name in sorted(features.columns) if name.startswith(BASE)]
    return torch.stack([instance_distance(features, column) for column in columns]).mean()


def instance_distance(features: Features, column: str) -> Tensor:
    """The mean squared distance of a column's unit rows to the base's, each times its weight.

    ProCLIP's instance semantic alignment (arXiv 2510.18795, section 3), which is summed over rows there.
    """
    rows, base = features[column], features[BASE + column]
    return _weighted(rows, (rows.own - base.own).square().sum(dim=1))


def structure_distance(features: Features, column: str) -> Tensor:
    """The mean over rows of half the smooth L1 distance between a row's distances to all others, here and at the base.

    ProCLIP's embedding structure alignment (arXiv 2510.18795, section 3), the released code's sum over pairs divided by
    the batch size.
    """
    import torch.nn.functional as F

    rows = features[column]
    here, there = (_distances(one) for one in (rows, features[BASE + column]))
    return _weighted(rows, F.smooth_l1_loss(here, there, reduction="none").sum(dim=1) / 2)


def _distances(rows: Feature) -> Tensor:
    """Distances of this rank's unit rows to all, `[batch, global batch]`; zero to itself."""
    import torch

    squared = (2 - 2 * rows.own @ rows.all.T).clamp(min=_SMALLEST)
    itself = torch.arange(rows.first, rows.first + rows.count, device=squared.device)
    return squared.scatter(1, itself[:, None], _SMALLEST).sqrt()


def _weighted(rows: Feature, losses: Tensor) -> Tensor:
    return (losses if rows.weights is None else rows.weights.to(losses) * losses).mean()
