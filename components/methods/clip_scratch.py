"""CLIP from random weights, on the data and with the settings of `adapted_lm`: that paper's baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from components.encoders.fresh import with_random_weights
from components.methods.method import Method
from components.training.features import Features
from components.training.losses import info_nce
from components.training.optimisation import Optimisation


@dataclass(frozen=True, kw_only=True)
class Hyper(Optimisation):
    """Table B.1's values for ViT-B/32 on CC12M; with another `image_tower` only the text side is new."""

    lr: float = 0.001
    batch_size: int = 4000
    epochs: int = 32
    weight_decay: float = 0.1
    warmup_steps: int = 10_000
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    image_tower: Literal["frozen", "trained", "random"] = "random"


def _losses(features: Features, _hyper: Hyper) -> dict[str, Tensor]:
    return {"infonce": info_nce(features["image"], features["caption"], features.scale)}


METHOD = Method(
    name="clip_scratch",
    citation="Radford et al., Learning Transferable Visual Models From Natural Language Supervision, ICML 2021",
    hyper=Hyper,
    columns=lambda _hyper: frozenset({"image", "caption"}),
    losses=_losses,
    visits=lambda _hyper: "pairs",
    tower=lambda base, _hyper: with_random_weights(base),
)
