"""Products with matrices that may have a trained difference of low rank (LoRA; Hu et al., ICLR 2022, section 4.1).

The difference is multiplied separately: `x @ (W + scale * up @ down).T` is `x @ W.T + scale * (x @ down.T) @ up.T`.
So the backward pass computes no gradient of the size of `W`, a third of all of a step's products.
"""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize


class LowRank(nn.Module):
    """A matrix `[out, in]` plus `alpha / rank * up @ down`, where `up` begins as zero and `numbers` draws `down`."""

    def __init__(self, weights: Tensor, rank: int, alpha: float, numbers: torch.Generator) -> None:
        super().__init__()
        rows, columns = weights.shape
        down = nn.init.kaiming_uniform_(torch.empty(rank, columns), a=math.sqrt(5), generator=numbers)
        self.down = nn.Parameter(down.to(weights.device))
        self.up = nn.Parameter(torch.zeros(rows, rank, device=weights.device))
        self.scale = alpha / rank

    def forward(self, weights: Tensor) -> Tensor:
        """The sum, `[out, in]`."""
        return weights + self.scale * (self.up @ self.down)


class LowRankLinear(nn.Linear):
    """A linear layer whose matrix may have a difference of low rank."""

    def forward(self, x: Tensor) -> Tensor:
        """`[..., out]` of `x` `[..., in]`."""
        return product(x, self, "weight", self.bias)


def product(x: Tensor, module: nn.Module, name: str, bias: Tensor | None, rows: slice | None = None) -> Tensor:
    """`x` `[..., in]` times the transposed matrix `name` of `module`, plus `bias` `[out]`: `[..., out]`.

    Args:
        rows: of the matrix, those that are used; None for all.
    """
    if not parametrize.is_parametrized(module, name):
        return F.linear(x, _rows(getattr(module, name), rows), bias)
    matrix = cast("parametrize.ParametrizationList", cast("nn.ModuleDict", module.parametrizations)[name])
    difference = cast("LowRank", matrix[0])
    flat = x.flatten(0, -2)
    found = F.linear(flat, _rows(matrix.original, rows), bias)
    # Contiguous, because its gradient is then a product that a processor computes several times faster.
    up = _rows(difference.up, rows).T.contiguous().to(found.dtype)
    found = found.addmm_(F.linear(flat, difference.down), up, alpha=difference.scale)
    return found.view(*x.shape[:-1], -1)


def _rows(matrix: Tensor, rows: slice | None) -> Tensor:
    return matrix if rows is None else matrix[rows]  # even a slice of all rows copies the gradient
