"""LoRA: each weight matrix of the text side learns a difference of low rank (Hu et al., ICLR 2022, section 4.1).

The difference is a torch parametrisation, so that every computation of a tower uses the sum, and is merged into the
weights at the end: the saved encoder has the usual parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from components.core.system.errors import InputError
from components.methods.contract.method import TEXT_TOWER

_NEVER = ("token_embedding", "positional_embedding", "embeddings.")
"""Parts of the names of lookup tables, which are not matrices of a product."""


class LowRank(nn.Module):
    """A matrix `[out, in]` plus `alpha / rank * up @ down`, where `up` begins as zero and `numbers` draws `down`."""

    def __init__(self, weights: Tensor, rank: int, alpha: float, numbers: torch.Generator) -> None:
        super().__init__()
        rows, columns = weights.shape
        down = nn.init.kaiming_uniform_(torch.empty(rank, columns), a=math.sqrt(5), generator=numbers)
        self.down = nn.Parameter(down.to(weights.device))
        self.up = nn.Parameter(torch.zeros(rows, rank, device=weights.device))
        self._scale = alpha / rank

    def forward(self, weights: Tensor) -> Tensor:
        """The sum, `[out, in]`."""
        return weights + self._scale * (self.up @ self.down)


def add_low_rank(
    model: nn.Module,
    trained: Mapping[str, nn.Parameter],
    rank: int,
    alpha: float,
    new: Sequence[str] = (),
    seed: int = 0,
) -> dict[str, nn.Parameter]:
    """Add a trained difference to the matrices among `trained`, and freeze the rest of the text side.

    Args:
        trained: the parameters that would be trained without LoRA, by name.
        new: patterns of the names of randomly initialised parameters, which are trained in full.
        seed: of the differences, which are the same on every rank and device.

    Returns:
        The trained parameters by name: differences, new ones, the logit scale and those of the image tower.

    Raises:
        InputError: `trained` has no matrix of the text side that is not new.
    """
    whole = {
        name for name in trained if not re.search(TEXT_TOWER, name) or any(re.search(pattern, name) for pattern in new)
    }
    matrices = [
        name
        for name, weights in trained.items()
        if name not in whole and weights.ndim == 2 and not any(part in name for part in _NEVER)
    ]
    if not matrices:
        raise InputError(
            "params.yaml: lora_rank needs a pretrained weight matrix, but this method trains none: set it to 0"
        )
    for name, weights in trained.items():
        weights.requires_grad_(name in whole)
    numbers = torch.Generator().manual_seed(seed)
    for name in matrices:
        module, _, attribute = name.rpartition(".")
        difference = LowRank(trained[name], rank, alpha, numbers)
        parametrize.register_parametrization(model.get_submodule(module), attribute, difference)
    return {name: weights for name, weights in model.named_parameters() if weights.requires_grad}


def merge_low_rank(model: nn.Module) -> None:
    """Merge all differences into their matrices; each remains the same parameter."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            parametrizations = module.parametrizations
            assert isinstance(parametrizations, nn.ModuleDict)
            for attribute in list(parametrizations):
                parametrize.remove_parametrizations(module, attribute, leave_parametrized=True)
