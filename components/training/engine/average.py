"""An exponential moving average of the weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class MovingAverage:
    """`average = decay * average + (1 - decay) * weights` after every step.

    Args:
        trained: parameters by name; the average starts at their values.
        decay: per step.
    """

    def __init__(self, trained: Mapping[str, nn.Parameter], decay: float) -> None:
        self._trained = trained
        self._decay = decay
        self.tensors: dict[str, Tensor] = {name: weights.detach().clone() for name, weights in trained.items()}

    @torch.no_grad()
    def update(self) -> None:
        """Move the average towards the weights."""
        torch._foreach_lerp_(list(self.tensors.values()), list(self._trained.values()), 1 - self._decay)

    @torch.no_grad()
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from a saved average."""
        for name, average in self.tensors.items():
            average.copy_(tensors[name])

    @torch.no_grad()
    def put(self) -> None:
        """Make the average the weights, for good."""
        for name, weights in self._trained.items():
            weights.copy_(self.tensors[name])

    @contextmanager
    def as_weights(self) -> Iterator[None]:
        """The average in place of the weights for the length of the block."""
        kept = {name: weights.detach().clone() for name, weights in self._trained.items()}
        self.put()
        try:
            yield
        finally:
            with torch.no_grad():
                for name, weights in self._trained.items():
                    weights.copy_(kept[name])
