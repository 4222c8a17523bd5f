"""A query adapter: another encoder's frozen text tower, and an affine map from it into the space of the base's index.

Vectors of pictures stay; queries are understood by the new model, as far as an affine map can say it in the old space.
Drift-Adapter (arXiv 2509.23471) fits such maps between embedding models on pairs of old and new vectors. Here the pairs
are captions, and the map takes the place of the tower's projection, so that the result is an encoder like any other:
evaluated, promoted, exported and served as they are. The paper's low rank is not imposed: the map has one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import NonNegativeInt, PositiveInt

from components.training.methods.contract.losses import Features, Losses, info_nce, instance_distance
from components.training.methods.contract.method import Method, NotNegative, Optimisation, Positive

if TYPE_CHECKING:
    from components.encoders.adapter.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class QueryAdapterSettings(Optimisation):
    """Values of our own; one linear layer on frozen features takes a large learning rate.

    Attributes:
        encoder: folder of the encoder whose text tower is taken (`cliptune export --format open_clip` writes one of any
            published weights); None for the base's own, which shows the loss of the affine map alone.
        contrast: weight of CLIP's loss with the pictures of the captions; 0 fits on captions alone.
    """

    lr: Positive = 0.003
    batch_size: PositiveInt = 256
    epochs: PositiveInt = 3
    warmup_steps: NonNegativeInt = 20
    learn_logit_scale: bool = False
    encoder: str | None = None
    contrast: NotNegative = 0.0


class QueryAdapter(Method[QueryAdapterSettings]):
    """The distance of mapped captions to the base's, and CLIP's loss with their pictures if it has a weight."""

    name = "query_adapter"
    citation = "Drift-Adapter, arXiv 2509.23471, as the projection of a text tower"
    settings_class = QueryAdapterSettings
    weighted = True
    epoch_unit = "pairs"
    trainable = (r"^text\.text_projection\.",)
    builds_tower = True
    reads_base = True

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({"caption", *(["image"] if self.settings.contrast else [])})

    @property
    def contrasts(self) -> bool:
        return self.settings.contrast > 0

    def losses(self, features: Features) -> Losses:
        losses = {"distance": instance_distance(features, "caption")}
        if weight := self.settings.contrast:
            losses["infonce"] = weight * info_nce(features["image"], features["caption"], features.scale)
        return losses

    def build_encoder(self, base: Encoder) -> Encoder:
        from components.encoders.adapter.encoder import Encoder
        from components.training.new_text_towers import with_text_tower_of

        given = self.settings.encoder
        return with_text_tower_of(base, Encoder.load(Path(given)) if given else base)

    def files(self) -> dict[str, Path]:
        return {"encoder": Path(self.settings.encoder)} if self.settings.encoder else {}


METHOD = QueryAdapter
