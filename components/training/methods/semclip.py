"""SemCLIP: projected to a few directions, a caption agrees with its paraphrase and not with its negation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import NonNegativeInt, PositiveInt

from components.core.settings.block import Seed
from components.core.system.errors import InputError
from components.training.methods.contract.losses import Features, Losses, info_nce, unit
from components.training.methods.contract.method import Betas, Method, NotNegative, Optimisation, Positive, Visits

if TYPE_CHECKING:
    from torch import Tensor, nn

    from components.encoders.adapter.encoder import Encoder


@dataclass(frozen=True, kw_only=True)
class SemclipSettings(Optimisation):
    """The values of section 4 and appendix B; the batch size is released code's.

    Attributes:
        contrastive_weight: equation 7's alpha. A term of weight 0 is left out and its column is not needed.
        paraphrase_weight: equation 7's beta.
        negation_weight: equation 7's gamma (`gamma` is the exponential schedule's).
        n: number of projection directions.
        learnable: whether the directions are trained; they start orthonormal and may then turn freely.
        normalised: of `soft_sign`, see `_agreement`; a cosine is the same either way.
        protocol: `paper` contrasts unit features at the encoder's logit scale (equation 4). `released`, the authors'
            code, contrasts raw features at a new logit scale that starts at 1/0.07 and has no upper bound, does not
            limit the length of learnt directions, and decays all trained parameters. `soft_sign` is ours, for n = 1:
            `paper` with another agreement.
        basis_seed: of the directions; they are the same on every rank.
        paraphrase: its column: SemCLIP's, generated here; that of its published files; or one of ParaCLIP's.
        negation: its column: SemCLIP's, generated here, or that of its published files.
        rows: columns that a row must have, so that variants without a term can train on the same rows.
        learn_logit_scale: for the encoder's scale; off if no term uses it.
    """

    lr: Positive = 5e-5
    batch_size: PositiveInt = 256
    epochs: PositiveInt = 200
    weight_decay: NotNegative = 0.2
    warmup_steps: NonNegativeInt = 50
    betas: Betas = (0.9, 0.999)
    eps: Positive = 1e-8
    clip_gradient: Positive | None = 1.0
    accumulate: PositiveInt = 2
    contrastive_weight: NotNegative = 1.0
    paraphrase_weight: NotNegative = 1.0
    negation_weight: NotNegative = 1.0
    n: PositiveInt = 2
    learnable: bool = False
    normalised: bool = True
    protocol: Literal["paper", "released", "soft_sign"] = "paper"
    basis_seed: Seed = 0
    paraphrase: Literal["semclip_paraphrase", "published_paraphrase", "paraphrase_1", "paraphrase_2"] = (
        "semclip_paraphrase"
    )
    negation: Literal["negation", "published_negation"] = "negation"
    rows: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.contrastive_weight + self.paraphrase_weight + self.negation_weight:
            raise InputError("params.yaml: semclip has no term left: give one of its weights a value above 0")
        if self.protocol == "soft_sign" and self.n > 1:
            raise InputError(f"params.yaml: semclip's protocol soft_sign is for one direction, not {self.n}: set n: 1")
        if self.protocol == "released":
            object.__setattr__(self, "decay_all", True)
        if self.protocol == "released" or not self.contrastive_weight:
            object.__setattr__(self, "learn_logit_scale", False)

    @property
    def projects(self) -> bool:
        """Whether any term needs the projection."""
        return self.paraphrase_weight + self.negation_weight > 0


class Semclip(Method[SemclipSettings]):
    """Equation 7: a contrast of images and captions, and two terms of projected captions."""

    name = "semclip"
    citation = "Contrastive Vision-Language Learning with Paraphrasing and Negation (SemCLIP), arXiv 2511.16527"
    settings_class = SemclipSettings

    @property
    def columns(self) -> frozenset[str]:
        own = self.settings
        pairs = {
            ("image", "caption"): own.contrastive_weight,
            ("caption", own.paraphrase): own.paraphrase_weight,
            ("caption", own.negation): own.negation_weight,
        }
        return frozenset(column for pair, weight in pairs.items() if weight for column in pair)

    @property
    def contrasts(self) -> bool:
        return self.settings.contrastive_weight > 0

    @property
    def rows(self) -> frozenset[str]:
        return frozenset(self.settings.rows)

    @property
    def epoch_unit(self) -> Visits:
        """Rows of the published files, which the released loader shuffles."""
        return "rows" if any(column.startswith("published_") for column in self.columns | self.rows) else "pairs"

    def losses(self, features: Features) -> Losses:
        """Every term is multiplied by its share of the weights."""
        own = self.settings
        total = own.contrastive_weight + own.paraphrase_weight + own.negation_weight
        terms = {}
        if own.contrastive_weight:
            terms["contrastive"] = own.contrastive_weight / total * self._contrastive(features)
        if own.paraphrase_weight:  # equation 5
            distance = (1 - self._agreement(features, own.paraphrase)).mean()
            terms["paraphrase"] = own.paraphrase_weight / total * distance
        if own.negation_weight:  # equation 6
            agreement = self._agreement(features, own.negation).clamp(min=0).mean()
            terms["negation"] = own.negation_weight / total * agreement
        return terms

    def _contrastive(self, features: Features) -> Tensor:
        """Equation 4."""
        if self.settings.protocol == "released":
            scale: Tensor = features.extra.log_scale.exp()  # type: ignore[operator,union-attr]
            return info_nce(features.raw("image"), features.raw("caption"), scale)
        return info_nce(features["image"], features["caption"], features.scale)

    def _agreement(self, features: Features, column: str) -> Tensor:
        """Agreement of the projections of caption and `column`, `[batch]`, within [-1, 1].

        The cosine of equations 5 and 6. With n = 1 it is the product of two signs, without a gradient. The paper
        describes a bit for this case, on for a paraphrase and off for a negation (section 3.3). Protocol `soft_sign`
        trains this bit by the product of soft signs `tanh(sqrt(dim) * p)`. There `sqrt(dim)` gives the projection of a
        random unit vector a spread of 1. If projections are not normalised, the product of the projections takes its
        place.
        """
        import torch
        import torch.nn.functional as F

        one, other = (self._projected(features, name) for name in ("caption", column))
        if self.settings.protocol != "soft_sign":
            return F.cosine_similarity(one, other)
        if self.settings.normalised:
            spread = math.sqrt(features["caption"].all.shape[-1])
            one, other = torch.tanh(spread * one), torch.tanh(spread * other)
        product: Tensor = (one * other).squeeze(-1)
        return product

    def _projected(self, features: Features, column: str) -> Tensor:
        """Scalar projections `[batch, n]` of unit rows (equation 1).

        Only `released` keeps the lengths of learnt directions.
        """
        directions: Tensor = features.extra.directions  # type: ignore[assignment]
        return features[column].own @ (directions if self.settings.protocol == "released" else unit(directions)).T

    def extra(self, encoder: Encoder) -> nn.Module:
        return projection(encoder.sidecar.embed_dim, self.settings)

    def warnings(self) -> list[str]:
        own = self.settings
        if not own.projects or own.protocol == "soft_sign":
            return []
        if own.n == 1:
            return [
                "semclip with n: 1 compares two signs, so its paraphrase and negation terms have no gradient: "
                "set n: 2, or protocol: soft_sign"
            ]
        useless = "semclip's normalised: false changes nothing: a cosine does not depend on lengths"
        return [] if own.normalised else [useless]


def projection(dim: int, hyper: SemclipSettings) -> nn.Module:
    """Equation 3's matrix `directions` `[n, dim]`, and the new logit scale of protocol `released`.

    The directions are Gaussian vectors made orthonormal (section 3.2).
    """
    import torch
    from torch import nn

    extra: Any = nn.Module()
    if hyper.projects:
        if hyper.n > dim:
            raise InputError(f"params.yaml: semclip's n is {hyper.n}, the encoder has {dim} dimensions: lower n")
        generator = torch.Generator().manual_seed(hyper.basis_seed)
        directions = nn.init.orthogonal_(torch.empty(hyper.n, dim), generator=generator)
        if hyper.learnable:
            extra.directions = nn.Parameter(directions)
        else:
            extra.register_buffer("directions", directions)
    if hyper.protocol == "released" and hyper.contrastive_weight:
        extra.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    return extra  # type: ignore[no-any-return]


METHOD = Semclip
