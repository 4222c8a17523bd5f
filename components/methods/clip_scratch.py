"""CLIP from random weights, on the data and with the settings of `adapted_lm`: that paper's baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor

from components.encoders.new_text_towers import with_random_weights
from components.methods.contract.features import Features
from components.methods.contract.losses import info_nce
from components.methods.contract.method import TEXT_TOWER, Method
from components.methods.contract.optimisation import Betas, NotNegative, Optimisation, Positive


@dataclass(frozen=True, kw_only=True)
class Hyper(Optimisation):
    """Table B.1's values for ViT-B/32 on CC12M; with another `image_tower` only the text side is new."""

    lr: Positive = 0.001
    batch_size: PositiveInt = 4000
    epochs: PositiveInt = 32
    weight_decay: NotNegative = 0.1
    warmup_steps: NonNegativeInt = 10_000
    betas: Betas = (0.9, 0.98)
    eps: Positive = 1e-6
    image_tower: Literal["frozen", "trained", "random"] = "random"


def _losses(features: Features, _hyper: Hyper) -> dict[str, Tensor]:
    return {"infonce": info_nce(features["image"], features["caption"], features.scale)}


METHOD = Method(
    name="clip_scratch",
    citation="Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021",
    hyper=Hyper,
    columns=lambda _hyper: frozenset({"image", "caption"}),
    losses=_losses,
    weighted=lambda _hyper: True,
    visits=lambda _hyper: "pairs",
    new=lambda _hyper: (TEXT_TOWER,),
    tower=lambda base, _hyper: with_random_weights(base),
)
