"""LaCLIP-style fine-tuning: each step sees a row's caption or one of its rewrites, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from components.training.methods.contract.losses import Features, Losses, clip_loss
from components.training.methods.contract.method import Betas, Method, NotNegative, Optimisation, Positive

DRAWN = "drawn_caption"
"""The made-up column."""


@dataclass(frozen=True, kw_only=True)
class LaclipFtSettings(Optimisation):
    """LaCLIP trains from random weights; decay, betas, eps and the cosine are those of its released code.

    Learning rate, batch size, epochs and warm-up are those of NegCLIP's and CoN-CLIP's fine-tuning, because a peak of
    3e-3 would destroy a trained encoder. LaCLIP has four rewrites; here any text columns are possible.
    """

    lr: Positive = 1e-6
    batch_size: PositiveInt = 256
    epochs: PositiveInt = 5
    weight_decay: NotNegative = 0.1
    warmup_steps: NonNegativeInt = 50
    betas: Betas = (0.9, 0.98)
    eps: Positive = 1e-8
    rewrites: Annotated[tuple[str, ...], Field(min_length=1)] = ("rewrite", "paraphrase_1", "paraphrase_2")


class LaclipFt(Method[LaclipFtSettings]):
    """CLIP's loss of images and a column that is drawn uniformly from the caption and its rewrites, as in LaCLIP."""

    name = "laclip_ft"
    citation = "Fan et al., Improving CLIP Training with Language Rewrites, NeurIPS 2023"
    settings_class = LaclipFtSettings
    columns = frozenset({"image", DRAWN})
    weighted = True

    @property
    def column_mixture(self) -> dict[str, dict[str, float]]:
        texts = ("caption", *self.settings.rewrites)
        return {DRAWN: dict.fromkeys(texts, 1 / len(texts))}

    def losses(self, features: Features) -> Losses:
        return clip_loss(features, DRAWN)


METHOD = LaclipFt
