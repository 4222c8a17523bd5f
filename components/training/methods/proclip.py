"""ProCLIP: a language model as text tower first learns the features of the base's text tower, then contrasts.

The first phase reads only captions: the new tower's features are drawn to the base's, and so are their distances to
each other. The second is CLIP's loss with the same two terms for the image tower, which must stay near the base's.
Where the image tower is frozen (`image_tower: frozen`, which keeps an image index valid), these terms hold the text
features to the base's instead; that is ours. The terms are those of the released code
(github.com/VisionXLab/ProCLIP, `training/train.py`), divided by the batch size. The paper's learning rates, epochs,
batch and the weight in its second phase could not be found: the values here are LLM2CLIP's order of magnitude and
ours. Both phases share one schedule, and in the first a trained image tower only decays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from components.training.methods.contract.losses import (
    BASE,
    Features,
    Losses,
    info_nce,
    instance_distance,
    structure_distance,
)
from components.training.methods.contract.method import ImageTower, NotNegative, Positive
from components.training.methods.lm_text_tower import LmTextTower, LmTextTowerSettings


@dataclass(frozen=True, kw_only=True)
class ProclipSettings(LmTextTowerSettings):
    """As in the paper, the language model is frozen and a perceptron on top of it is trained; the rest is ours.

    Attributes:
        distil_share: of `epochs`, those of the first phase, rounded down.
        distil_weight: of the two terms in the second phase.
    """

    lr: Positive = 1e-4
    batch_size: PositiveInt = 4096
    epochs: PositiveInt = 8
    warmup_steps: NonNegativeInt = 500
    image_tower: ImageTower = "trained"
    strategy: Literal["finetuned", "frozen", "bottleneck", "alignment"] = "frozen"
    distil_share: Annotated[float, Field(ge=0, lt=1)] = 0.5
    distil_weight: NotNegative = 0.1


class Proclip(LmTextTower):
    """Distances to the base's features, then CLIP's loss with the same distances."""

    name = "proclip"
    citation = "Hu et al., ProCLIP: Progressive Vision-Language Alignment via LLM-based Embedder, 2025"
    settings_class = ProclipSettings
    settings: ProclipSettings
    reads_base = True

    def losses(self, features: Features) -> Losses:
        own = self.settings
        if features.epoch is not None and features.epoch < int(own.distil_share * own.epochs):
            return _near_base(features, "caption", 1.0)
        contrast = {"infonce": info_nce(features["image"], features["caption"], features.scale)}
        kept = "image" if BASE + "image" in features.columns else "caption"
        return contrast | _near_base(features, kept, own.distil_weight)


def _near_base(features: Features, column: str, weight: float) -> Losses:
    distances = {"instance": instance_distance, "structure": structure_distance}
    return {name: weight * distance(features, column) for name, distance in distances.items()}


METHOD = Proclip
