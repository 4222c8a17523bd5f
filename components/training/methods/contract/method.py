"""The base class of fine-tuning methods and of their settings.

Importing a method imports neither torch nor open_clip, so that settings are checked in milliseconds: functions that
compute import them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from components.core.system.errors import InputError
from components.core.system.renamed import hint
from components.core.tables.training_columns import IMAGES
from components.training.methods.contract.losses import Features, Losses, has_sigmoid_loss, retention

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor, nn

    from components.encoders.adapter.encoder import Encoder
    from components.encoders.adapter.tokens import Tokens

TEXT_TOWER = r"^(?!visual\.|logit_(scale|bias)$)"
"""Parameters of the text side of any encoder, its projection included."""

BLOCK = r"(text\.)?(transformer|language)\.([^\d.]+\.)*"
"""Start of the name of a text block's parameters, before its number, in any encoder."""

TEXT_BLOCKS = rf"^{BLOCK}\d+\."
"""Parameters of only the text tower's transformer blocks."""

_IMAGE_TOWER, _LOGIT_SCALE, _LOGIT_BIAS = r"^visual\.", r"^logit_scale$", r"^logit_bias$"

Visits = Literal["images", "pairs", "rows"]
"""Units that an epoch visits once: every image, by one of its captions; every pair, by one of its texts; or every row.

A pair is an image with a caption or, where rows are about two images, an ordered pair of images. It has as many rows as
generated texts.
"""


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Factor = Annotated[float, Field(gt=0, le=1)]
Betas = tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]]
"""Decay rates of AdamW's two moving averages."""
ImageTower = Literal["frozen", "trained", "random"]
Schedule = Literal["cosine", "constant", "exponential"]


@dataclass(frozen=True, kw_only=True)
class Optimisation:
    """Optimisation settings; the hyper-parameters of a method extend them.

    The bounds hold for values in params.yaml: a method with another default must repeat the type.

    Attributes:
        batch_size: rows of one contrastive batch, over all ranks together.
        accumulate: batches whose gradients are averaged into one step; negatives stay within a batch.
        decay_all: whether weight decay also holds for parameters of at most one dimension: norms, biases, logit scale.
        schedule: of the learning rate after warm-up; `exponential` multiplies it by `gamma` once per epoch.
        clip_gradient: largest norm of the gradient; None does not clip it.
        image_tower: `frozen` reads cached embeddings, `trained` starts from the base's tower, `random` from nothing.
        least_crop: smallest share of an image's area that a random resized crop leaves, if the image tower trains;
            1 does not crop, the training of CLIP, open_clip and NegCLIP has 0.9.
        weight_ensemble: share of the fine-tuned weights in the exported ones, the rest is the base's
            (WiSE-FT; PC-CLIP appendix A averages with 0.5).
        learn_logit_scale: also for the logit bias of the sigmoid loss.
        retention: weight of the mean squared distance of unit features to the base encoder's, over all texts of a
            batch, and all images if the image tower trains; 0 does not compute the base's. Knowledge distillation from
            the base limits forgetting (arXiv 2606.27708). Neither the form of its loss nor its weight could be found:
            both are ours.
        matryoshka: numbers of leading dimensions, such as [64, 128, 256], that every contrast also compares, so that
            vectors can be cut to them (arXiv 2205.13147); empty compares only whole vectors.
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
    weight_ensemble: Annotated[float, Field(ge=0, le=1)] = 1.0
    retention: NotNegative = 0.0
    matryoshka: tuple[PositiveInt, ...] = ()


@dataclass(frozen=True)
class Neighbours:
    """Where the similar image of a row comes from: NegCLIP's hard image, CoN-CLIP's distractor.

    Attributes:
        count: the number of nearest images that it is drawn from in each epoch; with 1 it is always the nearest.
        data: folder of another checkout with `pairs` and `embeddings`, whose training images are searched; None for
            the rows' own images.
    """

    count: int = 3  # as NegCLIP draws it
    data: Path | None = None


@dataclass(frozen=True)
class Perturbed:
    """Columns that replace or extend those of a batch.

    Attributes:
        tokens: token ids by text column, `[batch, context]`.
        lengths: tokens of each text up to and with its end token, by text column, `[batch]`.
        features: raw features by column that no tower computes, `[batch, dim]`.
    """

    tokens: Mapping[str, Tokens]
    lengths: Mapping[str, npt.NDArray[np.int64]]
    features: Mapping[str, Tensor] = field(default_factory=dict)


Perturb = Callable[[Mapping[str, "Tokens"]], Perturbed]
"""Maps a batch's token ids by text column, `[batch, context]`; draws only from torch's random generator."""


SettingsT_co = TypeVar("SettingsT_co", bound=Optimisation, covariant=True)


class Method(Generic[SettingsT_co]):
    """One way to fine-tune an encoder, with its settings. A method overrides what differs from the defaults here.

    Attributes:
        name: the method's name and its file's.
        citation: the paper.
        settings_class: the class of its settings, a frozen dataclass whose defaults are the paper's.
        settings: the values of this entry of params.yaml.
    """

    name: ClassVar[str]
    citation: ClassVar[str]
    settings_class: ClassVar[type[Optimisation]]

    def __init__(self, settings: SettingsT_co, entry: str = "") -> None:
        self.settings = settings

    @property
    def columns(self) -> frozenset[str]:
        """The columns whose features its losses read, see `components.training.rows.tables`."""
        raise NotImplementedError

    def losses(self, features: Features) -> Losses:
        """Named loss terms of a batch, scalars; the loop minimises their sum."""
        raise NotImplementedError

    @property
    def rows(self) -> frozenset[str]:
        """Columns that a row must have although no loss reads them, so that variants train on the same rows."""
        return frozenset()

    @property
    def epoch_unit(self) -> Visits:
        """Unit that an epoch visits once.

        `images` for losses that contrast images with captions, where two captions of one image would be each other's
        false negatives; `pairs` where the paper's own code visits every row.
        """
        return "images"

    @property
    def neighbours(self) -> Neighbours:
        """Where the similar row of the columns `neighbour.<column>` comes from."""
        return Neighbours()

    @property
    def column_mixture(self) -> Mapping[str, Mapping[str, float]]:
        """For a made-up column, the columns that it is drawn from at each step, with their shares."""
        return {}

    @property
    def contrasts(self) -> bool:
        """Whether a loss compares rows with each other, so that a batch needs two."""
        return True

    @property
    def weighted(self) -> bool:
        """Whether its losses use the weights of pairs (column `weight` of `PAIRS`), as sums of `contrast` do."""
        return False

    @property
    def reads_base(self) -> bool:
        """Whether a loss reads the base encoder's features of the batch, columns `base.<column>`."""
        return self.settings.retention > 0

    @property
    def trainable(self) -> tuple[str, ...]:
        """Patterns of the names of trained parameters of the text side; all others are frozen.

        The image tower and the logit scale follow the settings `image_tower` and `learn_logit_scale`.
        """
        return (TEXT_TOWER,)

    @property
    def builds_tower(self) -> bool:
        """Whether `build_encoder` makes a text tower of its own."""
        return False

    def build_encoder(self, base: Encoder) -> Encoder:
        """The encoder to train, from the base encoder, which may be changed; the base itself for most methods."""
        return base

    def files(self) -> Mapping[str, Path]:
        """Files and folders that it reads besides tables and base, by name; called after `build_encoder`."""
        return {}

    def extra(self, encoder: Encoder) -> nn.Module:
        """The method's own tensors, trained and saved with the encoder."""
        from torch import nn

        return nn.Module()

    @property
    def augment(self) -> Callable[[Encoder], Perturb] | None:
        """Makes the function that changes each batch's texts, from the encoder before training; None for none."""
        return None

    def warnings(self) -> list[str]:
        """Warnings about these settings, printed before the run."""
        return []

    @classmethod
    def read(cls, given: Mapping[str, object], entry: str | None = None) -> Self:
        """The method with the values of params.yaml over the paper's.

        Args:
            given: the block of params.yaml without its key `method`.
            entry: the block's name under `methods`, for messages.
        """
        entry = entry or cls.name
        known = [known_field.name for known_field in fields(cls.settings_class)]
        for key in given:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                better = f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}"
                better = hint(f"methods.{entry}.{key}") or better
                raise InputError(f"params.yaml: unknown key 'methods.{entry}.{key}': {better}")
        try:
            settings = TypeAdapter(cls.settings_class).validate_python(dict(given))
        except ValidationError as error:
            fault = error.errors()[0]
            key = ".".join(str(part) for part in fault["loc"])
            raise InputError(f"params.yaml: key 'methods.{entry}.{key}': {fault['msg']}") from None
        # `settings_class` and the parameter of `Method` are the same type.
        method = cls(cast("SettingsT_co", settings), entry)
        for key, problem in method._contradictions():
            raise InputError(f"params.yaml: key 'methods.{entry}.{key}': {problem}")
        return method

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        """Keys whose values contradict others, and the fix."""
        settings = self.settings
        if settings.image_tower != "frozen" and IMAGES.keys().isdisjoint(self.columns):
            yield "image_tower", "no loss reads images: set it to frozen"
        if settings.image_tower == "frozen" and settings.least_crop < 1:
            yield "least_crop", "a frozen image tower reads embeddings: set it to 1"
        if settings.batch_size == 1 and self.contrasts:
            yield "batch_size", "one row has no negatives: set it to 2 or more"

    def objective(self, features: Features) -> Losses:
        """The method's losses with `matryoshka` and `retention`."""
        settings = self.settings
        if settings.matryoshka:
            nested = {name: replace(column, prefixes=settings.matryoshka) for name, column in features.columns.items()}
            features = replace(features, columns=nested, _unit={})
        losses = self.losses(features)
        return losses | {"retention": settings.retention * retention(features)} if settings.retention else losses

    @property
    def needs(self) -> frozenset[str]:
        """The columns that the tables must have, for the losses or so that variants train on the same rows."""
        drawn = {column for shares in self.column_mixture.values() for column in shares}
        return (self.columns - set(self.column_mixture)) | drawn | self.rows

    def start(self, base: Encoder) -> Encoder:
        """The encoder that training starts from; `base` may be changed."""
        from components.encoders.adapter.architecture import image_tower, refuse_batch_statistics

        if max(self.settings.matryoshka, default=0) >= (dim := base.sidecar.embed_dim):
            given = [*self.settings.matryoshka]
            raise InputError(f"matryoshka is {given}, but vectors have {dim} dimensions: name fewer")
        encoder = self.build_encoder(base)
        if self.settings.image_tower == "random":
            encoder.model.visual = image_tower(encoder.sidecar.architecture).eval()
            refuse_batch_statistics(encoder.model.visual, encoder.sidecar.model)
        return encoder

    def freeze(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """Freeze everything except the method's trained parameters; returns these by name."""
        patterns = [*self.trainable]
        if self.settings.image_tower != "frozen":
            patterns.append(_IMAGE_TOWER)
        if self.settings.learn_logit_scale:
            patterns += [_LOGIT_SCALE, *([_LOGIT_BIAS] if has_sigmoid_loss(model) else [])]
        matched: set[str] = set()
        trained = {}
        for name, parameter in model.named_parameters():
            hits = [pattern for pattern in patterns if re.search(pattern, name)]
            matched.update(hits)
            parameter.requires_grad_(bool(hits))
            if hits:
                trained[name] = parameter
        unmatched = [pattern for pattern in patterns if pattern not in matched]
        if unmatched:
            raise InputError(f"method '{self.name}' trains '{unmatched[0]}', which this encoder does not have")
        return trained
