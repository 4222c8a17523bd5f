"""PC-CLIP's two baselines: plain contrastive fine-tuning on captions, or on an LLM's rewrites of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import PositiveInt

from components.core.system.errors import InputError
from components.training.methods.contract.losses import Features, Losses, info_nce, scale_at
from components.training.methods.contract.method import (
    TEXT_BLOCKS,
    TEXT_TOWER,
    Betas,
    Factor,
    Method,
    Optimisation,
    Positive,
    Schedule,
)


@dataclass(frozen=True, kw_only=True)
class CaptionFtSettings(Optimisation):
    """Appendix A.1's values for fine-tuning on COCO; Adam as released code has it.

    Attributes:
        column: the text; `caption` is "COCO FT", `rewrite` is "Rewrite FT".
        rows: columns that a row must have, so that both baselines can train on the same captions.
        temperature: null takes the encoder's logit scale; released code has 0.1.
        scope: `blocks` trains the text tower's transformer blocks, as released code does; `tower` all of it.
    """

    lr: Positive = 1e-6
    batch_size: PositiveInt = 128
    epochs: PositiveInt = 10
    schedule: Schedule = "exponential"
    gamma: Factor = 0.9
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8
    learn_logit_scale: bool = False
    column: Literal["caption", "rewrite"] = "caption"
    rows: tuple[str, ...] = ()
    temperature: Positive | None = 1.0
    scope: Literal["blocks", "tower"] = "blocks"

    def __post_init__(self) -> None:
        if self.learn_logit_scale and self.temperature is not None:
            raise InputError("params.yaml: caption_ft learns the logit scale only with temperature: null")


class CaptionFt(Method[CaptionFtSettings]):
    """CLIP's loss of images and the texts of one column."""

    name = "caption_ft"
    citation = "Sam et al., Finetuning CLIP to Reason about Pairwise Differences, TMLR 2025 (baselines)"
    settings_class = CaptionFtSettings
    weighted = True

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"image", self.settings.column})

    @property
    def rows(self) -> frozenset[str]:
        return frozenset(self.settings.rows)

    @property
    def trainable(self) -> tuple[str, ...]:
        return (TEXT_BLOCKS if self.settings.scope == "blocks" else TEXT_TOWER,)

    def losses(self, features: Features) -> Losses:
        scale = scale_at(features, self.settings.temperature)
        return {"infonce": info_nce(features["image"], features[self.settings.column], scale)}


METHOD = CaptionFt
