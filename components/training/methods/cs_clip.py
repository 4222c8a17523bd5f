"""CS-CLIP, against half-truths: NegCLIP's loss on whole captions, and on a part of each caption with the part's foil.

The weight of the parts is 0.5 in the authors' launcher, in the name of the reported run and, since their last revision,
in `configs/loss/multi_caption.yaml`, which first had 0: no parts. The loss of the parts is `negclip_hard`: an image is
contrasted with its part, the other parts of the batch and its own part's foil.

They draw two parts of a caption at each step and average their losses; here each epoch draws one part per caption. Two
facts are unknown: the captions that an epoch visits (here one of every image, as in NegCLIP), and whether the 128 rows
of each of their 8 GPUs are negatives of each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveInt

from components.training.methods.contract.losses import Features, Losses, contrast, hard_clip_loss
from components.training.methods.contract.method import ImageTower, Method, NotNegative, Optimisation, Positive


@dataclass(frozen=True, kw_only=True)
class HalfTruthsSettings(Optimisation):
    """The values of the released configuration for COCO; betas, eps and the cosine are the defaults of every method.

    Their learning rate warms up for three of the five epochs from a tenth and ends at a hundredth; here it starts and
    ends at zero, and `warmup_steps` is the length. They hold out a fifth of the images and keep the best epoch: set
    `train.validation_images`, `train.validate_every` and `train.select_checkpoint` for that.

    Attributes:
        unit_weight: of the parts' loss, relative to that of whole captions.
    """

    lr: Positive = 5e-6
    batch_size: PositiveInt = 128
    epochs: PositiveInt = 5
    weight_decay: NotNegative = 0.01
    decay_all: bool = True
    clip_gradient: Positive | None = 1.0
    image_tower: ImageTower = "trained"
    unit_weight: Positive = 0.5


class CsClip(Method[HalfTruthsSettings]):
    """All hard negatives of the batch are negatives of an image, but only its own part's foil."""

    name = "cs_clip"
    citation = "Kargi et al., Half-Truths Break Similarity-Based Retrieval (CS-CLIP), arXiv 2602.23906"
    settings_class = HalfTruthsSettings
    columns = frozenset({"image", "caption", "hard_negative", "unit", "unit_foil"})
    weighted = True

    def losses(self, features: Features) -> Losses:
        image, unit, foil = (features[column] for column in ("image", "unit", "unit_foil"))
        scale, half = features.scale, self.settings.unit_weight / 2
        return hard_clip_loss(features, "hard_negative") | {
            "image_to_unit": contrast(image, unit, scale=scale, foil=foil) * half,
            "unit_to_image": contrast(unit, image, scale=scale) * half,
        }


METHOD = CsClip
