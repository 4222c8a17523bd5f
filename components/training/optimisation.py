"""How a run is optimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How a method is optimised; a method's hyper-parameters extend this with its own.

    Attributes:
        batch_size: rows of one contrastive batch, over all ranks together.
        accumulate: batches whose gradients are averaged into one step; negatives stay within a batch.
        schedule: of the learning rate after warm-up; `exponential` multiplies it by `gamma` once per epoch.
        clip_gradient: largest norm of the gradient; None to leave it alone.
        image_tower: `frozen` reads cached embeddings, `trained` starts from the base's tower, `random` from nothing.
        learn_logit_scale: whether the logit scale moves.
        ema: decay per step of an exponential moving average of the weights, which is then what is exported.
        weight_ensemble: share of the fine-tuned weights in the exported ones, the rest is the base's
            (WiSE-FT; PC-CLIP appendix A averages with 0.5).
    """

    lr: float
    batch_size: int
    epochs: int
    weight_decay: float = 0.0
    warmup_steps: int = 0
    schedule: Literal["cosine", "constant", "exponential"] = "cosine"
    gamma: float = 0.9
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    clip_gradient: float | None = None
    accumulate: int = 1
    image_tower: Literal["frozen", "trained", "random"] = "frozen"
    learn_logit_scale: bool = True
    ema: float | None = None
    weight_ensemble: float = 1.0
