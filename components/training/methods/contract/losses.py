"""Features of a batch as losses see them, and the losses that methods share.

Each loss is this rank's part; the mean over ranks is the loss of the global batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

    from components.encoders.adapter.tokens import Tokens

TEXT_TEMPERATURE = 0.07
"""Of contrasts of two texts on an encoder with a logit bias: CLIP's before training.

Scale and bias of the sigmoid loss are learnt for pairs of image and text, whose cosines are much lower.
"""
BASE = "base."
"""Prefix of a column's features as the base encoder computes them, such as `base.caption`."""
Losses = dict[str, "Tensor"]
"""Named loss terms of a batch, scalars; training minimises their sum."""
_SMALLEST = 1e-12
"""Least squared distance, below which a distance has no gradient: the root's is infinite at zero."""


@dataclass(frozen=True)
class Feature:
    """One column's features.

    Attributes:
        all: the rows of all ranks, `[global batch, dim]`.
        first: index of this rank's first row.
        count: number of this rank's rows.
        weights: of this rank's rows, `[batch]`, with mean 1 over the global batch; None for equal weights.
        alike: which rows of the global batch also match each of this rank's rows and so are not its negatives, bool
            `[batch, global batch]`, the row itself excluded; None where there are no such rows.
        prefixes: numbers of leading dimensions that `contrast` also compares, at length one.
    """

    all: Tensor
    first: int
    count: int
    weights: Tensor | None = None
    alike: Tensor | None = None
    prefixes: tuple[int, ...] = ()

    @property
    def own(self) -> Tensor:
        """This rank's rows, `[batch, dim]`."""
        return self.all[self.first : self.first + self.count]

    def with_(self, function: Callable[..., Tensor], *others: Feature) -> Feature:
        """`function` of these rows and the same rows of `others`; it must treat rows independently.

        A combination of several columns, such as a difference of two images, has no `alike` rows.
        """
        made = function(self.all, *(other.all for other in others))
        return replace(self, all=made, alike=None if others else self.alike)


@dataclass(frozen=True)
class Sigmoid:
    """Scale and bias of logits, scalars; `contrast` with them is SigLIP's loss (arXiv 2303.15343, section 3.2)."""

    scale: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Features:
    """A batch as losses see it; `features["caption"]` has unit rows.

    Attributes:
        columns: raw features by column, as the towers compute them.
        scale: for `contrast`: the logit scale, exponentiated, a scalar; or scale and bias of the sigmoid loss.
        extra: the method's own tensors, an empty module for most.
        tokens: token ids of this rank's rows by text column, `[batch, context]`.
        labels: class numbers of this rank's rows by name, `[batch, ...]`.
        epoch: the epoch from 0, for losses that change during training; None for those at its end.
    """

    columns: Mapping[str, Feature]
    scale: Tensor | Sigmoid
    extra: nn.Module
    tokens: Mapping[str, Tokens] = field(default_factory=dict)
    labels: Mapping[str, Tensor] = field(default_factory=dict)
    epoch: int | None = None
    _unit: dict[str, Feature] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Feature:
        if column not in self._unit:
            self._unit[column] = self.columns[column].with_(unit)
        return self._unit[column]

    @property
    def text_scale(self) -> Tensor:
        """The logit scale of contrasts of two texts."""
        return _at(self.scale.scale, TEXT_TEMPERATURE) if isinstance(self.scale, Sigmoid) else self.scale

    def raw(self, column: str) -> Feature:
        """The column's features before normalisation."""
        return self.columns[column]


def unit(rows: Tensor) -> Tensor:
    """Rows `[batch, dim]` scaled to length one."""
    import torch.nn.functional as F

    return F.normalize(rows, dim=-1)


def contrast(
    anchor: Feature, positive: Feature, *negatives: Feature, scale: Tensor | Sigmoid, foil: Feature | None = None
) -> Tensor:
    """Loss of finding each anchor's own positive among all ranks' positives and negatives.

    With a plain scale it is the cross-entropy over all of them; with a `Sigmoid` the sum of the binary cross-entropies
    of each of them. If the anchor has `prefixes`, the losses of these leading dimensions, at length one, are added to
    that of the whole rows with equal weights (Matryoshka; arXiv 2205.13147, equation 1 with all c_m = 1).

    Args:
        anchor: unit rows; only this rank's are scored, so that no rank holds all logits.
        positive: unit rows, row i belongs to row i of `anchor`; the other rows are negatives, except those that both
            columns mark as `alike`.
        negatives: further unit rows that are negatives of every anchor, such as hard negatives.
        scale: the logit scale, exponentiated, a scalar; or a scale and bias.
        foil: unit rows; each is a negative only of the anchor in its row.

    Returns:
        The mean over this rank's rows, each times its weight, a scalar.
    """
    loss = _contrast_whole(anchor, positive, *negatives, scale=scale, foil=foil)
    for dim in anchor.prefixes:
        cut = [rows.with_(lambda whole, dim=dim: unit(whole[:, :dim])) for rows in (anchor, positive, *negatives)]
        foils = None if foil is None else foil.with_(lambda whole, dim=dim: unit(whole[:, :dim]))
        loss = loss + _contrast_whole(*cut, scale=scale, foil=foils)
    return loss


def _contrast_whole(
    anchor: Feature, positive: Feature, *negatives: Feature, scale: Tensor | Sigmoid, foil: Feature | None
) -> Tensor:
    import torch
    import torch.nn.functional as F

    candidates = torch.cat([positive.all, *(negative.all for negative in negatives)]) if negatives else positive.all
    factor = scale.scale if isinstance(scale, Sigmoid) else scale
    logits = factor * anchor.own @ candidates.T
    if foil is not None:
        logits = torch.cat([logits, factor * (anchor.own * foil.own).sum(dim=1, keepdim=True)], dim=1)
    if isinstance(scale, Sigmoid):
        logits = logits + scale.bias
    if anchor.alike is not None and positive.alike is not None:
        hidden = F.pad(anchor.alike, (0, logits.shape[1] - anchor.alike.shape[1]))
        logits = logits.masked_fill(hidden, -torch.inf)
    targets = torch.arange(anchor.first, anchor.first + anchor.count, device=logits.device)
    if isinstance(scale, Sigmoid):
        matches = F.one_hot(targets, logits.shape[1]).to(logits)
        rows = F.softplus(logits * (1 - 2 * matches)).sum(dim=1)
    elif anchor.weights is None:
        return F.cross_entropy(logits, targets)
    else:
        rows = F.cross_entropy(logits, targets, reduction="none")
    return (rows if anchor.weights is None else anchor.weights.to(rows) * rows).mean()


def info_nce(first: Feature, second: Feature, scale: Tensor | Sigmoid) -> Tensor:
    """Symmetric InfoNCE of matching unit rows, as CLIP defines it: the mean of both directions' cross-entropies.

    With a `Sigmoid` both directions are the same sum, which is SigLIP's loss.
    """
    return (contrast(first, second, scale=scale) + contrast(second, first, scale=scale)) / 2


def clip_loss(features: Features, column: str = "caption") -> Losses:
    """CLIP's loss of images and the texts of a column."""
    return {"infonce": info_nce(features["image"], features[column], features.scale)}


def hard_clip_loss(features: Features, negative: str) -> Losses:
    """CLIP's loss of images and captions in which the texts of another column are negatives of every image."""
    image, caption, scale = features["image"], features["caption"], features.scale
    return {
        "image_to_text": contrast(image, caption, features[negative], scale=scale) / 2,
        "text_to_image": contrast(caption, image, scale=scale) / 2,
    }


def scale_at(features: Features, temperature: float | None) -> Tensor | Sigmoid:
    """The logit scale `1 / temperature`, without a bias, which is learnt for one scale; `features.scale` for None."""
    scale = features.scale
    return scale if temperature is None else _at(scale.scale if isinstance(scale, Sigmoid) else scale, temperature)


def _at(scale: Tensor, temperature: float) -> Tensor:
    import torch

    return torch.full_like(scale, 1 / temperature)


def has_sigmoid_loss(model: nn.Module) -> bool:
    """Whether contrasts with images use SigLIP's sigmoid loss: where the encoder has a logit bias.

    Contrasts at a fixed `temperature`, and of two texts, are always softmax.
    """
    return getattr(model, "logit_bias", None) is not None


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
