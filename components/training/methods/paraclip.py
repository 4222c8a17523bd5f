"""ParaCLIP: aligns captions, plain paraphrases and paraphrases of these with each other and with images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from components.training.methods.contract.losses import Features, Losses, info_nce
from components.training.methods.contract.method import Method, NotNegative, Optimisation, Positive

Term = Literal["l1", "l1_prime", "l1_second", "l2", "l3"]

_PAIRS: dict[Term, tuple[str, str]] = {
    "l1": ("image", "caption"),
    "l1_prime": ("image", "paraphrase_1"),
    "l1_second": ("image", "paraphrase_2"),
    "l2": ("caption", "paraphrase_1"),
    "l3": ("paraphrase_1", "paraphrase_2"),
}
"""The two columns that each term of table 2 contrasts."""


@dataclass(frozen=True, kw_only=True)
class ParaclipSettings(Optimisation):
    """Appendix A's values; `terms` are summed (section 2.2) and can be those of any row of table 2."""

    lr: Positive = 5e-7
    batch_size: PositiveInt = 3072
    epochs: PositiveInt = 1
    weight_decay: NotNegative = 0.001
    terms: Annotated[tuple[Term, ...], Field(min_length=1)] = ("l1_second", "l2", "l3")


class Paraclip(Method[ParaclipSettings]):
    """The sum of InfoNCE losses of the chosen pairs of columns."""

    name = "paraclip"
    citation = "Kim et al., Fine-tuning CLIP Text Encoders with Two-step Paraphrasing, EACL Findings 2024"
    settings_class = ParaclipSettings
    weighted = True
    rows = frozenset({"caption", "paraphrase_1", "paraphrase_2"})

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(column for term in self.settings.terms for column in _PAIRS[term])

    def losses(self, features: Features) -> Losses:
        losses: Losses = {}
        for term in self.settings.terms:
            one, other = _PAIRS[term]
            scale = features.scale if one == "image" else features.text_scale
            losses[term] = info_nce(features[one], features[other], scale)
        return losses


METHOD = Paraclip
