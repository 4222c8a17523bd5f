"""Weight ensembling: an encoder between the base and its fine-tuned self."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from components.core.errors import InputError


def check_ensemble(share: float, trained: Mapping[str, nn.Parameter], base: Mapping[str, Tensor]) -> None:
    """Raise `InputError` when training does not start from the base's weights: their average would be no encoder."""
    odd = [name for name, weights in trained.items() if name not in base or base[name].shape != weights.shape]
    if share < 1 and odd:
        raise InputError(
            f"weight_ensemble {share} needs a base with the same towers, but it has no '{odd[0]}': set it to 1"
        )
    new = [name for name, weights in trained.items() if share < 1 and not torch.equal(weights.cpu(), base[name].cpu())]
    if new:
        raise InputError(
            f"weight_ensemble {share} averages with the base's weights, but '{new[0]}' starts at random: set it to 1"
        )


@torch.no_grad()
def ensemble(share: float, trained: Mapping[str, nn.Parameter], base: Mapping[str, Tensor]) -> None:
    """Replace each weight by `share` of itself and the rest of the base's (WiSE-FT; PC-CLIP appendix A: 0.5)."""
    if share == 1:
        return
    for name, weights in trained.items():
        weights.lerp_(base[name].to(weights), 1 - share)
