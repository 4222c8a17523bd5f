"""How a run is optimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Betas = tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]
"""Decay rates of AdamW's two moving averages."""
ImageTower = Literal["frozen", "trained", "random"]
Schedule = Literal["cosine", "constant", "exponential"]


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How a method is optimised; a method's hyper-parameters extend this with its own.

    The bounds hold for what params.yaml says: a method that gives another default must repeat the type.

    Attributes:
        batch_size: rows of one contrastive batch, over all ranks together.
        accumulate: batches whose gradients are averaged into one step; negatives stay within a batch.
        decay_all: whether weight decay also holds for parameters of one dimension or none: norms, biases, logit scale.
        schedule: of the learning rate after warm-up; `exponential` multiplies it by `gamma` once per epoch.
        clip_gradient: largest norm of the gradient; None to leave it alone.
        image_tower: `frozen` reads cached embeddings, `trained` starts from the base's tower, `random` from nothing.
        least_crop: smallest share of an image's area that a random resized crop leaves, where the image tower trains;
            1 crops nothing, CLIP's, open_clip's and NegCLIP's training has 0.9.
        learn_logit_scale: whether the logit scale moves.
        ema: decay per step of an exponential moving average of the weights, which is then what is exported.
        weight_ensemble: share of the fine-tuned weights in the exported ones, the rest is the base's
            (WiSE-FT; PC-CLIP appendix A averages with 0.5).
        lora_rank: of the differences that the text side's weight matrices learn (LoRA), all else of the text side
            being frozen; 0 trains what the method trains. Differences need larger learning rates than weights.
        lora_alpha: scale of these differences, times `lora_rank`.
    """

    lr: Positive
    batch_size: PositiveInt
    epochs: PositiveInt
    weight_decay: NotNegative = 0.0
    decay_all: bool = False
    warmup_steps: NonNegativeInt = 0
    schedule: Schedule = "cosine"
    gamma: Factor = 0.9
    betas: Betas = (0.9, 0.98)
    eps: Positive = 1e-6
    clip_gradient: Positive | None = None
    accumulate: PositiveInt = 1
    image_tower: ImageTower = "frozen"
    least_crop: Factor = 1.0
    learn_logit_scale: bool = True
    ema: Annotated[float, Field(ge=0, lt=1)] | None = None
    weight_ensemble: Share = 1.0
    lora_rank: NonNegativeInt = 0
    lora_alpha: Positive = 16.0
