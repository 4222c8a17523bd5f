"""LoRA: each weight matrix of the text side learns a difference of low rank (Hu et al., ICLR 2022, section 4.1).

The difference is a torch parametrisation, so that every computation of a tower uses the sum, and is merged into the
weights at the end: the saved encoder has the usual parameters. Most products avoid the sum, see `product`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.utils import parametrize

from components.core.system.errors import InputError
from components.encoders.adapter.low_rank import LowRank, LowRankLinear
from components.training.methods.contract.method import TEXT_TOWER

_NEVER = ("token_embedding", "positional_embedding", "embeddings.")
"""Parts of the names of lookup tables, which are not matrices of a product."""


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
    if rank > (most := min(min(trained[name].shape) for name in matrices)):
        raise InputError(
            f"params.yaml: lora_rank {rank} exceeds the rank of a trained matrix: set it to {most} or less"
        )
    for name, weights in trained.items():
        weights.requires_grad_(name in whole)
    numbers = torch.Generator().manual_seed(seed)
    for name in matrices:
        module, _, attribute = name.rpartition(".")
        difference, layer = LowRank(trained[name], rank, alpha, numbers), model.get_submodule(module)
        if type(layer) in (nn.Linear, NonDynamicallyQuantizableLinear):
            layer.__class__ = LowRankLinear
        parametrize.register_parametrization(layer, attribute, difference)
    return {name: weights for name, weights in model.named_parameters() if weights.requires_grad}


def merge_low_rank(model: nn.Module) -> None:
    """Merge all differences into their matrices; each remains the same parameter."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            parametrizations = module.parametrizations
            assert isinstance(parametrizations, nn.ModuleDict)
            for attribute in list(parametrizations):
                parametrize.remove_parametrizations(module, attribute, leave_parametrized=True)
        if type(module) is LowRankLinear:
            module.__class__ = nn.Linear  # type: ignore[assignment]
