"""CS-CLIP, against half-truths: NegCLIP's loss on whole captions, and its like on a part of each with the part's foil.

The weight of the parts is 0.5 in the authors' launcher, in the name of the run that they report and, since their last
revision, in `configs/loss/multi_caption.yaml`, which first had 0: no parts at all. So is the loss of the parts,
`negclip_hard`: an image tells its part from the others of the batch and from that part's own foil.

They take two parts of a caption at each step, drawn anew, and the mean of their losses; here it is one part a step, and
each epoch draws it among the caption's. What could not be found is which captions an epoch visits (here one of every
image, as in NegCLIP) and whether the 128 rows of each of their 8 GPUs are each other's negatives.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import PositiveInt

from components.methods.contract.losses import Features, Losses, contrast
from components.methods.contract.method import Method
from components.methods.contract.optimisation import ImageTower, NotNegative, Optimisation, Positive


@dataclass(frozen=True, kw_only=True)
class HalfTruthsSettings(Optimisation):
    """The values of the released configuration for COCO; betas, eps and the cosine are those of every method here.

    It warms up for three of the five epochs, from a tenth of the rate, and ends at a hundredth; here `warmup_steps`
    says how long, from nothing, and it ends at nothing. They hold out a fifth of the images and keep the best epoch by
    it: here `train.held_out`, `train.validate_every` and `train.export` say so.

    Attributes:
        unit_weight: of the parts' loss beside that of whole captions.
    """

    lr: Positive = 5e-6
    batch_size: PositiveInt = 128
    epochs: PositiveInt = 5
    weight_decay: NotNegative = 0.01
    decay_all: bool = True
    clip_gradient: Positive | None = 1.0
    image_tower: ImageTower = "trained"
    unit_weight: Positive = 0.5


def _losses(features: Features, hyper: HalfTruthsSettings) -> Losses:
    """An image tells its caption from all hard negatives of the batch, but its part from that part's foil alone."""
    image, caption, negative, unit, foil = (features[column] for column in _COLUMNS)
    scale, half = features.scale, hyper.unit_weight / 2
    return {
        "image_to_text": contrast(image, caption, negative, scale=scale) / 2,
        "text_to_image": contrast(caption, image, scale=scale) / 2,
        "image_to_unit": contrast(image, unit, scale=scale, foil=foil) * half,
        "unit_to_image": contrast(unit, image, scale=scale) * half,
    }


_COLUMNS = ("image", "caption", "hard_negative", "unit", "unit_foil")

METHOD = Method(
    name="half_truths",
    citation="Kargi et al., Half-Truths Break Similarity-Based Retrieval (CS-CLIP), arXiv 2602.23906",
    hyper=HalfTruthsSettings,
    columns=lambda _hyper: frozenset(_COLUMNS),
    losses=_losses,
    weighted=lambda _hyper: True,
)
