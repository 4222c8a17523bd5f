"""NegCLIP: captions with two things swapped as hard negative texts, similar images with their texts as hard images."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import NonNegativeInt, PositiveInt

from components.training.methods.contract.losses import Features, Losses, contrast, hard_clip_loss
from components.training.methods.contract.method import ImageTower, Method, NotNegative, Optimisation, Positive


@dataclass(frozen=True, kw_only=True)
class NegclipSettings(Optimisation):
    """The values of the published run (its repository's README); decay is the default of its trainer.

    Attributes:
        hard_images: whether the image, caption and hard negative of a similar row are added to the batch. That row may
            be in the batch anyway and is then twice among the candidates, as in the published code.
    """

    lr: Positive = 1e-6
    batch_size: PositiveInt = 256
    epochs: PositiveInt = 5
    weight_decay: NotNegative = 0.2
    warmup_steps: NonNegativeInt = 50
    image_tower: ImageTower = "trained"
    hard_images: bool = True


_ROW = ("image", "caption", "hard_negative")


class Negclip(Method[NegclipSettings]):
    """Images are contrasted with all texts, captions with all images; hard negatives are never anchors."""

    name = "negclip"
    citation = "Yuksekgonul et al., When and Why Vision-Language Models Behave like Bags-of-Words, ICLR 2023"
    settings_class = NegclipSettings
    weighted = True

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(_ROW) | frozenset(f"neighbour.{column}" for column in _ROW if self.settings.hard_images)

    def losses(self, features: Features) -> Losses:
        if not self.settings.hard_images:
            return hard_clip_loss(features, "hard_negative")
        scale = features.scale
        image, caption, negative = (features[column] for column in _ROW)
        near_image, near_caption, near_negative = (features[f"neighbour.{column}"] for column in _ROW)
        to_text = contrast(image, caption, near_caption, negative, near_negative, scale=scale) + contrast(
            near_image, near_caption, caption, negative, near_negative, scale=scale
        )
        to_image = contrast(caption, image, near_image, scale=scale) + contrast(
            near_caption, near_image, image, scale=scale
        )
        return {"image_to_text": to_text / 4, "text_to_image": to_image / 4}


METHOD = Negclip
