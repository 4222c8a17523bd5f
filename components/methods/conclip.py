"""CoN-CLIP: an image is told from its negated caption, and that caption is given a similar image to belong to."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from components.methods.contract.features import Features
from components.methods.contract.losses import contrast
from components.methods.contract.method import Method
from components.methods.contract.optimisation import Betas, NotNegative, Optimisation, Positive


@dataclass(frozen=True, kw_only=True)
class Hyper(Optimisation):
    """The values of the published run; betas, eps and what decays are those that its released code leaves to AdamW.

    Attributes:
        distractors: whether a similar image joins each row, with the negated caption as its text.
    """

    lr: Positive = 1e-6
    batch_size: PositiveInt = 200
    epochs: PositiveInt = 5
    weight_decay: NotNegative = 0.2
    decay_all: bool = True
    warmup_steps: NonNegativeInt = 50
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8
    distractors: bool = True


_ROW = frozenset({"image", "caption", "negated_term"})
_DISTRACTOR = "neighbour.image"


def _losses(features: Features, hyper: Hyper) -> dict[str, Tensor]:
    """The mean of three cross-entropies, of two without distractor images."""
    image, caption, negated, scale = features["image"], features["caption"], features["negated_term"], features.scale
    if not hyper.distractors:
        to_text = contrast(image, caption, negated, scale=scale)
        to_image = contrast(caption, image, scale=scale)
        return {"image_to_text": to_text / 2, "text_to_image": to_image / 2}
    distractor = features[_DISTRACTOR]
    terms = {
        "image_to_text": contrast(image, caption, negated, scale=scale),
        "text_to_image": contrast(caption, image, distractor, scale=scale),
        "distractor_to_text": contrast(distractor, negated, caption, scale=scale),
    }
    return {name: term / 3 for name, term in terms.items()}


METHOD = Method(
    name="conclip",
    citation="Singh et al., Learn 'No' to Say 'Yes' Better: Improving Vision-Language Models via Negations, WACV 2025",
    hyper=Hyper,
    columns=lambda hyper: _ROW | {_DISTRACTOR} if hyper.distractors else _ROW,
    losses=_losses,
)
