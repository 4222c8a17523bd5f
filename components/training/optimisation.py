"""How a run is optimised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """How a method is optimised; a method's hyper-parameters extend this with its own."""

    lr: float
    batch_size: int
    epochs: int
    weight_decay: float = 0.0
    warmup_steps: int = 0
    schedule: Literal["cosine", "constant"] = "cosine"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    clip_gradient: float | None = None
