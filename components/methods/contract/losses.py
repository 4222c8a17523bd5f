"""Losses that methods share. Each is this rank's part; the mean over ranks is the loss of the global batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from components.methods.contract.features import Feature, Features


def contrast(
    anchor: Feature, positive: Feature, *negatives: Feature, scale: Tensor, foil: Feature | None = None
) -> Tensor:
    """Cross-entropy of finding each anchor's own positive among all ranks' positives and negatives.

    Args:
        anchor: unit rows; only this rank's are scored, so that no rank holds all logits.
        positive: unit rows, row i belongs to row i of `anchor`; the other rows are negatives, but for those that are
            `alike` it where both columns say so.
        negatives: more unit rows to tell apart, hard negatives say.
        scale: the logit scale, exponentiated; a scalar.
        foil: unit rows, each a negative of the anchor in its row alone.

    Returns:
        The mean over this rank's rows, each times its weight, a scalar.
    """
    candidates = torch.cat([positive.all, *(negative.all for negative in negatives)]) if negatives else positive.all
    logits = scale * anchor.own @ candidates.T
    if foil is not None:
        logits = torch.cat([logits, scale * (anchor.own * foil.own).sum(dim=1, keepdim=True)], dim=1)
    if anchor.alike is not None and positive.alike is not None:
        hidden = F.pad(anchor.alike, (0, logits.shape[1] - anchor.alike.shape[1]))
        logits = logits.masked_fill(hidden, -torch.inf)
    targets = torch.arange(anchor.first, anchor.first + anchor.count, device=logits.device)
    if anchor.weights is None:
        return F.cross_entropy(logits, targets)
    return (anchor.weights.to(logits) * F.cross_entropy(logits, targets, reduction="none")).mean()


def info_nce(one: Feature, other: Feature, scale: Tensor) -> Tensor:
    """Symmetric InfoNCE of matching rows, as CLIP defines it.

    Args:
        one: unit rows.
        other: unit rows; row i matches row i of `one`.
        scale: the logit scale, exponentiated; a scalar.

    Returns:
        The mean of both directions' cross-entropies, a scalar.
    """
    return (contrast(one, other, scale=scale) + contrast(other, one, scale=scale)) / 2


def scale_at(features: Features, temperature: float | None) -> Tensor:
    """The logit scale `1 / temperature`, or the encoder's own where the temperature is None; a scalar."""
    return features.scale if temperature is None else torch.full_like(features.scale, 1 / temperature)
