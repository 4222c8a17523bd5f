"""Contrastive losses that methods share."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def info_nce(one: Tensor, other: Tensor, scale: Tensor) -> Tensor:
    """Symmetric InfoNCE of matching rows, as CLIP defines it.

    Args:
        one: unit features `[batch, dim]`.
        other: unit features `[batch, dim]`; row i matches row i of `one`.
        scale: the logit scale, exponentiated; a scalar.

    Returns:
        The mean of both directions' cross-entropies, a scalar.
    """
    logits = scale * one @ other.T
    targets = torch.arange(len(one), device=one.device)
    return (F.cross_entropy(logits, targets) + F.cross_entropy(logits.T, targets)) / 2
