"""Adapted language models: a pretrained language model as text tower, trained with CLIP's loss."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from components.training.methods.clip_scratch import ClipScratch, ClipScratchSettings

if TYPE_CHECKING:
    from components.encoders.adapter.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class LmTextTowerSettings(ClipScratchSettings):
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

    strategy: Literal["finetuned", "frozen", "bottleneck", "alignment"] = "alignment"
    alignment_layers: Annotated[int, Field(ge=0)] = 6
    adapter_norm: bool = False
    adapter_placement: Literal["layers", "residuals"] = "layers"
    language_model: str | None = None


class LmTextTower(ClipScratch):
    """CLIP's loss on a language model as text tower."""

    name = "lm_text_tower"
    citation = "Cheng et al., Adapting Dual-encoder Vision-language Models for Paraphrased Retrieval, 2024"
    settings_class: ClassVar[type[LmTextTowerSettings]] = LmTextTowerSettings
    settings: LmTextTowerSettings

    @property
    def trainable(self) -> tuple[str, ...]:
        from components.encoders.adapter.language_tower import trained

        return trained(self.settings.strategy, self.settings.alignment_layers)

    def build_encoder(self, base: Encoder) -> Encoder:
        from components.training.new_text_towers import with_language_tower

        own = self.settings
        adapters = own.adapter_norm, own.adapter_placement
        return with_language_tower(base, own.language_model, own.strategy, own.alignment_layers, *adapters)

    def files(self) -> dict[str, Path]:
        """The language model; the default one comes with a package, whose version identifies it."""
        from components.encoders.adapter.language_tower import folder_of

        return {"language_model": folder_of(self.settings.language_model)} if self.settings.language_model else {}


METHOD = LmTextTower
