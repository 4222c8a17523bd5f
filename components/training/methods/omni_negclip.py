"""Omni-NegCLIP: negations of shown and of absent things, learned by the front blocks of the text tower.

The authors draw a batch of CC-Neg for the first objective and one of COCO with NegationCLIP's captions for the second;
here both are of the same rows. The values are those of the released code (github.com/Jingqi-Xu/Omni-NegCLIP, its
training script and `training_utils/loss_functions.py`). The paper's abstract does not give the number of front blocks.
The code trains the first six of ViT-B/32's twelve, although its comment says four.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import NonNegativeInt, PositiveInt

from components.training.methods.contract.losses import Feature, Features, Losses, contrast, info_nce
from components.training.methods.contract.method import BLOCK, Betas, Method, NotNegative, Optimisation, Positive

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class OmniNegclipSettings(Optimisation):
    """The defaults of the released code, else those of PyTorch's AdamW.

    Attributes:
        front_blocks: number of the text tower's first transformer blocks that train, besides embeddings, last layer
            norm and projection.
        absence_weight: of the objective about what an image lacks; the other objective's is 1.
        caption_weight: of plain captions within it.
        margin_weight: of the distance between a caption and its negation within it.
        margin: their cosine has no loss below minus this value.
    """

    lr: Positive = 1e-6
    batch_size: PositiveInt = 128
    epochs: PositiveInt = 30
    weight_decay: NotNegative = 0.2
    decay_all: bool = True
    warmup_steps: NonNegativeInt = 50
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8
    front_blocks: PositiveInt = 6
    absence_weight: NotNegative = 1.0
    caption_weight: NotNegative = 1.0
    margin_weight: NotNegative = 1.0
    margin: NotNegative = 0.9


class OmniNegclip(Method[OmniNegclipSettings]):
    """`presence` is the mean of three cross-entropies; the others are the weighted terms of the second objective."""

    name = "omni_negclip"
    citation = (
        "Xu, Omni-NegCLIP: Enhancing CLIP with Front-Layer Contrastive Fine-Tuning for Comprehensive Negation "
        "Understanding, 2026"
    )
    settings_class = OmniNegclipSettings
    columns = frozenset({"image", "caption", "negated_term", "absence"})
    weighted = True
    epoch_unit = "pairs"

    @property
    def trainable(self) -> tuple[str, ...]:
        front = "|".join(map(str, range(self.settings.front_blocks)))
        return rf"^(?!visual\.|logit_(scale|bias)$|{BLOCK}\d+\.)", rf"^{BLOCK}({front})\."

    def losses(self, features: Features) -> Losses:
        names = ("image", "caption", "negated_term", "absence")
        image, caption, negated, absence = (features[name] for name in names)
        own, scale = self.settings, features.scale
        presence = (
            contrast(image, caption, negated, scale=scale)
            + contrast(caption, image, scale=scale)
            # Of only these two texts: every other row is hidden.
            + contrast(_alone(image), _alone(caption), scale=scale, foil=negated)
        )
        weight = own.absence_weight
        return {
            "presence": presence / 3,
            "absence": weight * info_nce(image, absence, scale),
            "caption": weight * own.caption_weight * info_nce(image, caption, scale),
            "margin": weight * own.margin_weight * _apart(caption, absence, own.margin),
        }


def _alone(rows: Feature) -> Feature:
    """The rows without each other as negatives."""
    import torch

    places = torch.arange(len(rows.all), device=rows.all.device)
    return replace(rows, alike=places != places[rows.first : rows.first + rows.count, None])


def _apart(first: Feature, second: Feature, margin: float) -> Tensor:
    """The mean by which cosines of the same rows exceed minus `margin`, each times its weight."""
    rows = ((first.own * second.own).sum(dim=1) + margin).clamp(min=0)
    return (rows if first.weights is None else first.weights.to(rows) * rows).mean()


METHOD = OmniNegclip
