"""CoN-CLIP: contrasts an image with its negated caption, and pairs that caption with a similar image."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt

from components.core.system.errors import InputError
from components.training.methods.contract.losses import Features, Losses, contrast, hard_clip_loss
from components.training.methods.contract.method import Betas, Method, Neighbours, NotNegative, Optimisation, Positive


@dataclass(frozen=True, kw_only=True)
class ConclipSettings(Optimisation):
    """The values of the published run; betas, eps and decay are AdamW's defaults, as in its released code.

    Attributes:
        distractors: whether a similar image is added to each row, with the negated caption as its text.
        protocol: `drawn` is ours: one of the three nearest images, drawn in each epoch. `released` is always the
            nearest, like the authors' code, which reads it from a file made from the images of COCO.
        distractor_data: folder of another checkout with `pairs` and `embeddings` of the same base, whose training
            images are the distractors; null takes the images of the rows.
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
    protocol: Literal["drawn", "released"] = "drawn"
    distractor_data: str | None = None

    def __post_init__(self) -> None:
        if not self.distractors and (self.protocol == "released" or self.distractor_data is not None):
            raise InputError("params.yaml: conclip has distractors: false: drop protocol and distractor_data")


_ROW = frozenset({"image", "caption", "negated_term"})
_DISTRACTOR = "neighbour.image"


class Conclip(Method[ConclipSettings]):
    """The mean of three cross-entropies, of two without distractor images."""

    name = "conclip"
    citation = "Singh et al., Learn 'No' to Say 'Yes' Better: Improving Vision-Language Models via Negations, WACV 2025"
    settings_class = ConclipSettings
    weighted = True

    @property
    def columns(self) -> frozenset[str]:
        return _ROW | {_DISTRACTOR} if self.settings.distractors else _ROW

    def losses(self, features: Features) -> Losses:
        if not self.settings.distractors:
            return hard_clip_loss(features, "negated_term")
        scale = features.scale
        image, caption, negated = (features[column] for column in ("image", "caption", "negated_term"))
        distractor = features[_DISTRACTOR]
        terms = {
            "image_to_text": contrast(image, caption, negated, scale=scale),
            "text_to_image": contrast(caption, image, distractor, scale=scale),
            "distractor_to_text": contrast(distractor, negated, caption, scale=scale),
        }
        return {name: term / 3 for name, term in terms.items()}

    @property
    def neighbours(self) -> Neighbours:
        data = self.settings.distractor_data
        count = 1 if self.settings.protocol == "released" else Neighbours.count
        return Neighbours(count, None if data is None else Path(data))

    def files(self) -> dict[str, Path]:
        data = self.settings.distractor_data
        return {} if data is None else {"distractors": Path(data) / "embeddings"}


METHOD = Conclip
