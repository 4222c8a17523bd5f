"""What a method's losses see of a batch: features of every column, over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch.nn.functional as F
from torch import Tensor, nn

from components.encoders.adapter.tokens import Tokens


@dataclass(frozen=True)
class Feature:
    """One column's features.

    Attributes:
        all: the rows of all ranks, `[global batch, dim]`.
        first: where this rank's rows start.
        count: how many rows are this rank's.
        weights: of this rank's rows, `[batch]`, with the mean 1 over the global batch; None where all count the same.
        alike: which rows of the global batch are true of which of this rank's rows too and so are no negatives of
            them, bool `[batch, global batch]`, the row itself left out; None where there are no such rows.
    """

    all: Tensor
    first: int
    count: int
    weights: Tensor | None = None
    alike: Tensor | None = None

    @property
    def own(self) -> Tensor:
        """This rank's rows, `[batch, dim]`."""
        return self.all[self.first : self.first + self.count]

    def with_(self, function: Callable[..., Tensor], *others: Feature) -> Feature:
        """`function` of these rows and the same rows of `others`; it must treat every row alone.

        What is made of several columns, such as a difference of two images, is `alike` no other row.
        """
        made = function(self.all, *(other.all for other in others))
        return replace(self, all=made, alike=None if others else self.alike)


@dataclass(frozen=True)
class Features:
    """A batch as losses see it; `features["caption"]` has unit rows.

    Attributes:
        columns: raw features by column, as the towers give them.
        scale: the logit scale, exponentiated; a scalar.
        extra: the method's own tensors, an empty module for most.
        tokens: token ids of this rank's rows by text column, `[batch, context]`.
        labels: whole numbers that say what each of this rank's rows is, by name, `[batch, ...]`.
    """

    columns: Mapping[str, Feature]
    scale: Tensor
    extra: nn.Module
    tokens: Mapping[str, Tokens] = field(default_factory=dict)
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    _unit: dict[str, Feature] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Feature:
        if column not in self._unit:
            self._unit[column] = self.columns[column].with_(unit)
        return self._unit[column]

    def raw(self, column: str) -> Feature:
        """The column's features before they are normalised."""
        return self.columns[column]


def unit(rows: Tensor) -> Tensor:
    """Rows `[batch, dim]` scaled to length one."""
    return F.normalize(rows, dim=-1)
