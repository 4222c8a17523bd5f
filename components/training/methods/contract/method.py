"""The declaration of a fine-tuning method and its optimisation settings.

Importing a method imports neither torch nor open_clip, so that settings are checked in milliseconds: functions that
compute import them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, TypeAdapter, ValidationError

from components.core.system.errors import InputError
from components.core.system.renamed import hint
from components.core.tables.training_columns import IMAGES
from components.training.methods.contract.distillation import retention
from components.training.methods.contract.losses import Features, Losses, has_sigmoid_loss

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

_TOP = r"^(text\.)?(transformer\.resblocks\.(?P<block>\d+)\.|ln_final\.|text_projection)"
"""Parameters of the text tower above its embeddings."""

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
ContrastiveLoss = Literal["auto", "softmax", "sigmoid"]


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
        ema: decay per step of an exponential moving average of the weights, which is then exported.
        weight_ensemble: share of the fine-tuned weights in the exported ones, the rest is the base's
            (WiSE-FT; PC-CLIP appendix A averages with 0.5).
        learn_logit_scale: also for the logit bias of the sigmoid loss.
        last_blocks: number of the text tower's last blocks that train, with its final norm and projection if the method
            trains these; all other parameters of the text side are frozen. 0 for all blocks.
        contrastive_loss: of every contrast with images: `softmax` is CLIP's, `sigmoid` SigLIP's for an encoder with
            a logit bias, `auto` the sigmoid loss if the encoder has a logit bias. Contrasts at a fixed `temperature`,
            and of two texts, are always softmax; those of two texts have temperature 0.07 if the encoder has a logit
            bias and the others the sigmoid loss.
        retention: weight of the mean squared distance of unit features to the base encoder's, over all texts of a
            batch, and all images if the image tower trains; 0 does not compute the base's. Knowledge distillation from
            the base limits forgetting (arXiv 2606.27708). Neither the form of its loss nor its weight could be found:
            both are ours.
        matryoshka: numbers of leading dimensions, such as [64, 128, 256], that every contrast also compares, so that
            vectors can be cut to them (arXiv 2205.13147); empty compares only whole vectors.
        lora_rank: rank of the trained differences of the text side's weight matrices (LoRA), all other parameters of
            the text side being frozen; 0 does not use LoRA. Differences need larger learning rates than weights.
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
    contrastive_loss: ContrastiveLoss = "auto"
    last_blocks: NonNegativeInt = 0
    ema: Annotated[float, Field(ge=0, lt=1)] | None = None
    weight_ensemble: Annotated[float, Field(ge=0, le=1)] = 1.0
    retention: NotNegative = 0.0
    matryoshka: tuple[PositiveInt, ...] = ()
    lora_rank: NonNegativeInt = 0
    lora_alpha: Positive = 16.0


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


def _no_tensors(_encoder: Encoder, _hyper: Any) -> nn.Module:
    from torch import nn

    return nn.Module()


@dataclass(frozen=True)
class Method:
    """One way to fine-tune an encoder.

    Attributes:
        name: the method's name and its file's.
        citation: the paper.
        hyper: its hyper-parameters, a frozen dataclass whose defaults are the paper's.
        columns: the columns whose features its losses read, see `components.training.rows.tables`.
        losses: named loss terms of a batch; the loop minimises their sum.
        rows: columns that a row must have although no loss reads them, so that variants train on the same rows.
        epoch_unit: unit that an epoch visits once. `images` for losses that contrast images with captions, where two
            captions of one image would be each other's false negatives; `pairs` where the paper's own code visits every
            row.
        neighbours: where the similar row of the columns `neighbour.<column>` comes from.
        contrasts: whether a loss compares rows with each other, so that a batch needs two.
        weighted: whether its losses use the weights of pairs (column `weight` of `PAIRS`), as sums of `contrast` do.
        column_mixture: for a made-up column, the columns that it is drawn from at each step, with their shares.
        trainable: patterns of the names of trained parameters of the text side; all others are frozen. The image tower
            and the logit scale follow the hyper-parameters `image_tower` and `learn_logit_scale`.
        fresh_params: patterns of trained parameters that are randomly initialised; they are trained in full even with
            LoRA.
        build_encoder: builds the encoder to train from the base encoder; the base itself for most methods.
        files: files and folders that it reads besides tables and base, by name; called after `build_encoder`.
        extra: the method's own tensors, trained and saved with the encoder.
        reads_base: whether a loss reads the base encoder's features of the batch, columns `base.<column>`.
        augment: builds the function that changes each batch's texts, from the encoder before training; None for none.
        warnings: warnings about these hyper-parameters, printed before the run.
    """

    name: str
    citation: str
    hyper: type[Optimisation]
    columns: Callable[[Any], frozenset[str]]
    losses: Callable[[Features, Any], Losses] = field(repr=False)
    rows: Callable[[Any], frozenset[str]] = lambda _hyper: frozenset()
    epoch_unit: Callable[[Any], Visits] = lambda _hyper: "images"
    neighbours: Callable[[Any], Neighbours] = lambda _hyper: Neighbours()
    contrasts: Callable[[Any], bool] = lambda _hyper: True
    weighted: Callable[[Any], bool] = lambda _hyper: False
    column_mixture: Callable[[Any], Mapping[str, Mapping[str, float]]] = lambda _hyper: {}
    trainable: Callable[[Any], tuple[str, ...]] = lambda _hyper: (TEXT_TOWER,)
    fresh_params: Callable[[Any], tuple[str, ...]] = lambda _hyper: ()
    build_encoder: Callable[[Encoder, Any], Encoder] = lambda base, _hyper: base
    files: Callable[[Any], Mapping[str, Path]] = lambda _hyper: {}
    extra: Callable[[Encoder, Any], nn.Module] = _no_tensors
    reads_base: Callable[[Any], bool] = lambda hyper: hyper.retention > 0
    augment: Callable[[Encoder, Any], Perturb] | None = None
    warnings: Callable[[Any], list[str]] = lambda _hyper: []

    def settings(self, given: Mapping[str, Any], entry: str | None = None) -> Any:
        """The hyper-parameters with the values of params.yaml over the paper's.

        Args:
            given: the block of params.yaml without its key `method`.
            entry: the block's name under `methods`, for messages.
        """
        where = f"params.yaml: {{}} 'methods.{entry or self.name}.{{}}': {{}}"
        known = [known_field.name for known_field in fields(self.hyper)]
        for key in given:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1)
                old = hint(f"methods.{entry or self.name}.{key}")
                better = old or (f"did you mean '{close[0]}'?" if close else f"known are {', '.join(known)}")
                raise InputError(where.format("unknown key", key, better))
        try:
            hyper = TypeAdapter(self.hyper).validate_python(dict(given))
        except ValidationError as error:
            fault = error.errors()[0]
            key = ".".join(str(part) for part in fault["loc"])
            raise InputError(where.format("key", key, fault["msg"])) from None
        if hyper.image_tower != "frozen" and IMAGES.keys().isdisjoint(self.columns(hyper)):
            raise InputError(where.format("key", "image_tower", "no loss reads images: set it to frozen"))
        if hyper.image_tower == "frozen" and hyper.least_crop < 1:
            raise InputError(where.format("key", "least_crop", "a frozen image tower reads embeddings: set it to 1"))
        if hyper.contrastive_loss == "sigmoid" and getattr(hyper, "temperature", None) is not None:
            problem = "sigmoid has the encoder's own scale and bias: set it to auto, or temperature to null"
            raise InputError(where.format("key", "contrastive_loss", problem))
        if hyper.batch_size == 1 and self.contrasts(hyper):
            raise InputError(where.format("key", "batch_size", "one row has no negatives: set it to 2 or more"))
        return hyper

    def objective(self, features: Features, hyper: Optimisation) -> Losses:
        """The method's losses with `matryoshka` and `retention`."""
        if hyper.matryoshka:
            nested = {name: replace(column, prefixes=hyper.matryoshka) for name, column in features.columns.items()}
            features = replace(features, columns=nested, _unit={})
        losses = self.losses(features, hyper)
        return losses | {"retention": hyper.retention * retention(features)} if hyper.retention else losses

    def needs(self, hyper: Optimisation) -> frozenset[str]:
        """The columns that the tables must have, for the losses or so that variants train on the same rows."""
        draws = self.column_mixture(hyper)
        drawn = {column for shares in draws.values() for column in shares}
        return (self.columns(hyper) - set(draws)) | drawn | self.rows(hyper)

    def start(self, base: Encoder, hyper: Optimisation) -> Encoder:
        """The encoder that training starts from; `base` may be changed."""
        from components.encoders.adapter.architecture import image_tower, refuse_batch_statistics

        if max(hyper.matryoshka, default=0) >= (dim := base.sidecar.embed_dim):
            raise InputError(f"matryoshka is {[*hyper.matryoshka]}, but vectors have {dim} dimensions: name fewer")
        encoder = self.build_encoder(base, hyper)
        if hyper.image_tower == "random":
            encoder.model.visual = image_tower(encoder.sidecar.architecture).eval()
            refuse_batch_statistics(encoder.model.visual, encoder.sidecar.model)
        return encoder

    def freeze(self, model: nn.Module, hyper: Optimisation) -> dict[str, nn.Parameter]:
        """Freeze everything except the method's trained parameters; returns these by name."""
        patterns = [*self.trainable(hyper)]
        if hyper.image_tower != "frozen":
            patterns.append(_IMAGE_TOWER)
        if hyper.learn_logit_scale:
            patterns += [_LOGIT_SCALE, *([_LOGIT_BIAS] if has_sigmoid_loss(model, hyper) else [])]
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
        if hyper.last_blocks:
            _freeze_below(self.name, model, trained, hyper.last_blocks)
        return {name: weights for name, weights in trained.items() if weights.requires_grad}


def _freeze_below(method: str, model: nn.Module, trained: Mapping[str, nn.Parameter], last: int) -> None:
    """Freeze the text side below its `last` blocks."""
    tops = {name: re.search(_TOP, name) for name, _ in model.named_parameters() if re.search(TEXT_TOWER, name)}
    blocks = {name: int(top["block"]) for name, top in tops.items() if top and top["block"]}
    count = max(blocks.values(), default=-1) + 1
    if last > count or not any(blocks.get(name, -1) >= count - last for name in trained):
        raise InputError(f"last_blocks {last}: '{method}' does not train so many of the tower's {count}: set it to 0")
    for name in trained.keys() & tops.keys():
        if not tops[name] or blocks.get(name, count) < count - last:
            trained[name].requires_grad_(False)
