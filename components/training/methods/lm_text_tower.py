"""Adapted language models: a pretrained language model as text tower, trained with CLIP's loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from components.training.methods.contract.losses import clip_loss
from components.training.methods.contract.method import (
    TEXT_TOWER,
    Betas,
    ImageTower,
    Method,
    NotNegative,
    Optimisation,
    Positive,
)

if TYPE_CHECKING:
    from components.encoders.adapter.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class LmTextTowerSettings(Optimisation):
    """Table B.1's values for ViT-B/32 on CC12M; the paper's best strategy is six alignment layers (table 1).

    Attributes:
        strategy: trained besides the text projection: `finetuned` all of the language model, `frozen` nothing,
            `bottleneck` adapters in each layer, `alignment` new layers on top.
        alignment_layers: the number of layers that `alignment` adds; with 0 it is `frozen`.
        adapter_norm: whether the adapters of `bottleneck` begin with a layer norm, like those of Bapna and Firat.
        adapter_placement: `layers` puts one adapter after each layer, like Bapna and Firat; `residuals` puts two into
            each, like Houlsby et al. The paper cites both designs without a choice.
        language_model: a Hugging Face folder or name, the paper's is sentence-transformers/all-distilroberta-v1;
            None for all-MiniLM-L6-v2, which comes with this package.
    """

    lr: Positive = 0.001
    batch_size: PositiveInt = 4000
    epochs: PositiveInt = 32
    weight_decay: NotNegative = 0.1
    warmup_steps: NonNegativeInt = 10_000
    betas: Betas = (0.9, 0.98)
    eps: Positive = 1e-6
    image_tower: ImageTower = "random"
    strategy: Literal["finetuned", "frozen", "bottleneck", "alignment"] = "alignment"
    alignment_layers: Annotated[int, Field(ge=0)] = 6
    adapter_norm: bool = False
    adapter_placement: Literal["layers", "residuals"] = "layers"
    language_model: str | None = None


def _tower(base: Encoder, hyper: LmTextTowerSettings) -> Encoder:
    from components.encoders.new_text_towers import with_language_tower

    adapters = hyper.adapter_norm, hyper.adapter_placement
    return with_language_tower(base, hyper.language_model, hyper.strategy, hyper.alignment_layers, *adapters)


def _files(hyper: LmTextTowerSettings) -> dict[str, Path]:
    """The default model comes with a package, whose version identifies it."""
    from components.encoders.adapter.language_tower import folder_of

    return {"language_model": folder_of(hyper.language_model)} if hyper.language_model else {}


def _trains(hyper: LmTextTowerSettings) -> tuple[str, ...]:
    from components.encoders.adapter.language_tower import trained

    return trained(hyper.strategy, hyper.alignment_layers)


METHOD = Method(
    name="lm_text_tower",
    citation="Cheng et al., Adapting Dual-encoder Vision-language Models for Paraphrased Retrieval, 2024",
    hyper=LmTextTowerSettings,
    columns=lambda _hyper: frozenset({"image", "caption"}),
    losses=clip_loss(),
    weighted=lambda _hyper: True,
    epoch_unit=lambda _hyper: "pairs",
    trainable=_trains,
    # All that the other strategies train is new.
    fresh_params=lambda hyper: (r"^text\.projection\." if hyper.strategy == "finetuned" else TEXT_TOWER,),
    build_encoder=_tower,
    files=_files,
)
