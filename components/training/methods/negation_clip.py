"""NegationCLIP: CLIP's loss on captions that are extended with a true negation."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveInt

from components.training.methods.contract.losses import Features, Losses, clip_loss
from components.training.methods.contract.method import Betas, Method, NotNegative, Optimisation, Positive, Schedule


@dataclass(frozen=True, kw_only=True)
class NegationClipSettings(Optimisation):
    """The defaults of the released code (its `src/clip_finetune.py`), else those of PyTorch's AdamW.

    It holds out a fifth of the rows and keeps the epoch with the lowest loss on them: set `train.validation_images`,
    `train.validate_every` and `train.select_checkpoint` for that. An epoch visits every caption.
    """

    lr: Positive = 1e-6
    batch_size: PositiveInt = 512
    epochs: PositiveInt = 15
    weight_decay: NotNegative = 0.01
    decay_all: bool = True
    schedule: Schedule = "constant"
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8


class NegationClip(Method[NegationClipSettings]):
    """CLIP's loss of images and extended captions."""

    name = "negation_clip"
    citation = "Park et al., Know 'No' Better: Enhancing Negation Awareness in CLIP (NegationCLIP), ICCV 2025"
    settings_class = NegationClipSettings
    columns = frozenset({"image", "absence"})
    weighted = True
    epoch_unit = "pairs"
    # The text side without its last layer norm, which the released code freezes like the image tower.
    trainable = (r"^(?!visual\.|logit_(scale|bias)$|(text\.)?ln_final\.)",)

    def losses(self, features: Features) -> Losses:
        return clip_loss(features, "absence")


METHOD = NegationClip
