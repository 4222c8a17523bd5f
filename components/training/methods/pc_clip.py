"""PC-CLIP: aligns a text about the difference of two images with the difference of their embeddings."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pydantic import PositiveInt

from components.core.system.errors import InputError
from components.training.methods.contract.losses import Feature, Features, Losses, Sigmoid, contrast, scale_at, unit
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

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class PcClipSettings(Optimisation):
    """Appendix A.1's values for COCO; Adam as released code has it.

    Attributes:
        loss: `infonce` is equation 4, `mse` equation 5, which the paper trains for 5 epochs only.
        protocol: `paper` sums the loss over the batch, as equations 4 and 5 do; `released` takes the mean over rows,
            of `mse` over dimensions too, as the authors' code does, whose learning rates these are.
        temperature: of `infonce`; null takes the encoder's own logit scale.
        scope: `blocks` trains the text tower's transformer blocks, as released code does; `tower` all of it.
        antisymmetric: whether the reversed differences of all pairs are negatives of each text in `infonce`, so that
            texts encode which image comes first (section 3.3, equation 2). The reversed pair has no text, and the
            negated text embedding would repeat the same loss.
    """

    lr: Positive = 1e-8
    batch_size: PositiveInt = 512
    epochs: PositiveInt = 20
    schedule: Schedule = "exponential"
    gamma: Factor = 0.9
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8
    learn_logit_scale: bool = False
    loss: Literal["infonce", "mse"] = "infonce"
    protocol: Literal["paper", "released"] = "released"
    temperature: Positive | None = 1.0
    scope: Literal["blocks", "tower"] = "blocks"
    antisymmetric: bool = False

    def __post_init__(self) -> None:
        if self.loss == "mse" and self.antisymmetric:
            raise InputError("params.yaml: pc_clip with loss: mse has no negatives: drop antisymmetric")
        if self.learn_logit_scale and (self.loss == "mse" or self.temperature is not None):
            raise InputError("params.yaml: pc_clip learns the logit scale only with loss: infonce, temperature: null")


class PcClip(Method[PcClipSettings]):
    """A contrast, or a squared distance, of a text with the difference of two images' unit vectors (section 3.2)."""

    name = "pc_clip"
    citation = "Sam et al., Finetuning CLIP to Reason about Pairwise Differences, TMLR 2025"
    settings_class = PcClipSettings
    columns = frozenset({"image", "other_image", "difference"})
    epoch_unit = "pairs"

    @property
    def contrasts(self) -> bool:
        return self.settings.loss == "infonce"

    @property
    def trainable(self) -> tuple[str, ...]:
        return (TEXT_BLOCKS if self.settings.scope == "blocks" else TEXT_TOWER,)

    def losses(self, features: Features) -> Losses:
        difference = features["image"].with_(operator.sub, features["other_image"])
        text = features["difference"]
        # The mean of the ranks' losses is the loss of the global batch.
        rows = len(text.all) if self.settings.protocol == "paper" else 1
        if self.settings.loss == "mse":
            return {"mse": rows * self._squared_distance(text, difference)}
        scale = scale_at(features, self.settings.temperature)
        return {"infonce": rows * self._info_nce(text, difference.with_(unit), scale)}

    def _info_nce(self, text: Feature, direction: Feature, scale: Tensor | Sigmoid) -> Tensor:
        """Equation 4: differences are normalised like the texts."""
        reversed_pairs = (direction.with_(operator.neg),) if self.settings.antisymmetric else ()
        to_direction = contrast(text, direction, *reversed_pairs, scale=scale)
        return (to_direction + contrast(direction, text, scale=scale)) / 2

    def _squared_distance(self, text: Feature, difference: Feature) -> Tensor:
        """Equation 5 for one row on average; `released` divides it by the dimensions.

        Its X are "differences in image embeddings" (appendix C.2), not unit vectors as equation 4 has them, and
        released code does not normalise them either: a text learns how large the difference is as well as where it
        points.
        """
        squares = (text.own - difference.own).square()
        return squares.sum(dim=-1).mean() if self.settings.protocol == "paper" else squares.mean()


METHOD = PcClip
