"""How a method changes a batch's texts before the towers see them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

from components.encoders.adapter.tokens import Tokens


@dataclass(frozen=True)
class Perturbed:
    """Columns that replace the batch's own, or join them.

    Attributes:
        tokens: token ids by text column, `[batch, context]`.
        lengths: tokens of each text up to and with its end token, by text column, `[batch]`.
        features: raw features by column that no tower computes anew, `[batch, dim]`.
    """

    tokens: Mapping[str, Tokens]
    lengths: Mapping[str, npt.NDArray[np.int64]]
    features: Mapping[str, Tensor] = field(default_factory=dict)


Perturb = Callable[[Mapping[str, Tokens]], Perturbed]
"""Of a batch's token ids by text column, `[batch, context]`; draws at random from torch's generator alone."""
