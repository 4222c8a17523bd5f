"""CLIP from random weights, with the data and settings of `lm_text_tower`: the baseline of that paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from components.training.methods.contract.losses import Features, Losses, clip_loss
from components.training.methods.contract.method import Betas, ImageTower, Method, NotNegative, Optimisation, Positive

if TYPE_CHECKING:
    from components.encoders.adapter.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class ClipScratchSettings(Optimisation):
    """Table B.1's values for ViT-B/32 on CC12M; with another `image_tower` only the text side is new."""

    lr: Positive = 0.001
    batch_size: PositiveInt = 4000
    epochs: PositiveInt = 32
    weight_decay: NotNegative = 0.1
    warmup_steps: NonNegativeInt = 10_000
    betas: Betas = (0.9, 0.98)
    eps: Positive = 1e-6
    image_tower: ImageTower = "random"


class ClipScratch(Method[ClipScratchSettings]):
    """CLIP's loss on a text tower with random weights."""

    name = "clip_scratch"
    citation = "Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021"
    settings_class: ClassVar[type[ClipScratchSettings]] = ClipScratchSettings
    columns = frozenset({"image", "caption"})
    weighted = True
    epoch_unit = "pairs"
    builds_tower = True

    def losses(self, features: Features) -> Losses:
        return clip_loss(features)

    def build_encoder(self, base: Encoder) -> Encoder:
        from components.training.new_text_towers import with_random_weights

        return with_random_weights(base)


METHOD = ClipScratch
