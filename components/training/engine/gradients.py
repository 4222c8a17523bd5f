"""Gradients of one contrastive batch, exact for any size of micro-batches and any number of ranks.

Features are computed without a graph, the loss is computed once over the features of the global batch, and its gradient
with respect to the features is back-propagated through the towers, one micro-batch at a time (GradCache; Gao et al.,
Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup, 2021, section 3). Memory grows with the
micro-batch, not with the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel

from components.core.compute.distributed import World
from components.core.tables import NEIGHBOUR
from components.encoders.adapter.images import CLIP, Preparation
from components.encoders.adapter.text_tower import text_features
from components.training.methods.contract.losses import BASE, Feature, Features, Sigmoid, has_sigmoid_loss

if TYPE_CHECKING:
    from components.encoders.adapter.encoder import Encoder
    from components.encoders.adapter.tokens import Tokenizer
    from components.training.methods.contract.method import Perturb
    from components.training.rows.batches import Batch
    from components.training.rows.tables import Rows

Passed = tuple[Tensor | None, Tensor | None]
"""Features of a pass's texts and of its images."""


class Towers(nn.Module):
    """An encoder's towers.

    Args:
        autocast: element type of mixed precision; None for float32.
        compiled: whether torch compiles the towers; it pays on a GPU for runs of more than a few minutes.
        preparation: of pixels that are not normalised.
    """

    def __init__(
        self,
        model: Any,
        device: str,
        autocast: torch.dtype | None = None,
        compiled: bool = False,
        preparation: Preparation = CLIP,
    ) -> None:
        super().__init__()
        self.model = model
        self._device_type = device.split(":", maxsplit=1)[0]
        self._autocast, self._preparation = autocast, preparation
        self._text: Callable[[Any, Tensor], Tensor] = text_features
        self._image: Callable[[Tensor], Tensor] = model.encode_image
        if compiled:
            self._text = torch.compile(text_features, dynamic=True)
            self._image = torch.compile(model.encode_image)

    def forward(self, texts: Tensor | None, pixels: Tensor | None) -> Passed:
        """Raw float32 features of texts `[texts, dim]` and of images `[images, dim]`; None for a missing input."""
        with self._precision(), self._attention():
            of_texts = None if texts is None else self._text(self.model, texts).float()
            if pixels is not None and not pixels.is_floating_point():
                pixels = self._preparation.normalise(pixels)
            of_images = None if pixels is None else self._image(pixels).float()
        return of_texts, of_images

    def _precision(self) -> torch.autocast:
        return torch.autocast(self._device_type, self._autocast, enabled=self._autocast is not None)

    def _attention(self) -> AbstractContextManager[None]:
        """Plain attention on a CPU: torch's fused one has a bfloat16 backward pass several times slower."""
        slow = self._device_type == "cpu" and self._autocast is not None and torch.is_grad_enabled()
        return sdpa_kernel(SDPBackend.MATH) if slow else nullcontext()


@dataclass(frozen=True)
class MicroBatch:
    """The input of one pass through the towers.

    Attributes:
        texts: token ids `[texts, longest]`, cut after the longest text's end token; None without texts.
        text_rows: indices of the texts among the batch's, column after column.
        pixels: as in `Batch`, `[images, ...]`; None for a frozen image tower.
        pixel_rows: indices of the images, likewise.
        lengths: tokens of each text up to and with its end token, `[texts]`.
    """

    texts: Tensor | None
    text_rows: Tensor
    pixels: Tensor | None
    pixel_rows: Tensor
    lengths: Rows


def cut(batch: Batch, size: int | None) -> list[MicroBatch]:
    """The batch in pieces of at most `size` texts and `size` images; one piece without a size.

    The last piece has texts and images if the batch has both: DDP averages gradients in its pass, so every trained
    parameter must be used in it.
    """
    texts = sorted(batch.tokens)
    lengths = np.concatenate([batch.lengths[name] for name in texts]) if texts else np.zeros(0, np.int64)
    images = sum(len(batch.pixels[name]) for name in batch.pixels)
    pieces = max(1, math.ceil(max(len(lengths), images) / size)) if size else 1
    # Longest first: the largest allocation comes first and the others fit into it. With fewer rows than pieces,
    # `array_split` leaves its last parts empty, which become the first.
    order = np.argsort(lengths, kind="stable")
    text_parts, pixel_parts = (np.array_split(rows, pieces)[::-1] for rows in (order, np.arange(images)))
    return [
        MicroBatch(
            texts=_texts(batch, texts, lengths, rows),
            text_rows=torch.from_numpy(rows),
            pixels=_pixels(batch, pixels),
            pixel_rows=torch.from_numpy(pixels),
            lengths=lengths[rows],
        )
        for rows, pixels in zip(text_parts, pixel_parts, strict=True)
    ]


def _texts(batch: Batch, names: list[str], lengths: Rows, rows: Rows) -> Tensor | None:
    if not len(rows):
        return None
    longest, per_column = int(lengths[rows].max()), len(batch.ids)
    ids = np.empty((len(rows), longest), dtype=np.int64)
    for place, name in enumerate(names):
        here = rows // per_column == place
        ids[here] = batch.tokens[name][rows[here] % per_column, :longest]
    return torch.from_numpy(ids)


def _pixels(batch: Batch, rows: Rows) -> Tensor | None:
    if not len(rows):
        return None
    per_column = len(batch.ids)
    names = sorted(batch.pixels)
    return torch.cat([batch.pixels[names[int(row) // per_column]][row % per_column, None] for row in rows])


@dataclass(frozen=True)
class Teacher:
    """The base encoder before training.

    Attributes:
        tokenizer: of its text tower.
        trained: the tokenizer of the texts of batches.
    """

    towers: Towers
    tokenizer: Tokenizer
    trained: Tokenizer

    @staticmethod
    def of(base: Encoder, trained: Tokenizer, device: str = "cpu", autocast: torch.dtype | None = None) -> Teacher:
        """The teacher that `base`, which nothing else may train, is on a device."""
        model = base.model.to(device)
        towers = Towers(model, device, autocast, preparation=base.sidecar.preparation)
        return Teacher(towers, base.tokenizer, trained)

    def reads(self, batch: Batch) -> Batch:
        """The batch with tokens for the base's text tower; another tokenizer reads texts as the first decodes them."""
        if self.tokenizer.identity == self.trained.identity:
            return batch
        texts = {name: self.trained.texts(tokens) for name, tokens in batch.tokens.items()}
        tokens = {name: self.tokenizer(column) for name, column in texts.items()}
        return replace(
            batch, tokens=tokens, lengths={name: self.tokenizer.lengths(ids) for name, ids in tokens.items()}
        )


@dataclass(frozen=True)
class Objective:
    """The differentiated function.

    Attributes:
        model: the encoder's model; the exponential of its `logit_scale` scales similarities.
        losses: named loss terms of a batch; their sum is differentiated.
        micro_batch: number of texts, and of images, per pass through the towers; None for all.
        perturb: changes the texts of a batch before the towers encode them; None for no change.
        teacher: computes columns `base.<column>` of unchanged texts and of pixels; None without them.
    """

    towers: Towers | DistributedDataParallel
    model: Any
    extra: nn.Module
    losses: Callable[[Features], dict[str, Tensor]]
    micro_batch: int | None
    world: World
    device: str
    perturb: Perturb | None = None
    teacher: Teacher | None = None


@dataclass(frozen=True)
class BatchLosses:
    """Losses by name, the mean over ranks, `[]` each; and the number of tokens of this rank's texts."""

    losses: dict[str, Tensor]
    tokens: int


def backward(
    objective: Objective,
    batch: Batch,
    scale: Callable[[Tensor], Tensor],
    sync: bool = True,
    epoch: int | None = None,
) -> BatchLosses:
    """Add the gradient of the batch's summed losses to the trained parameters' `.grad`.

    Args:
        scale: applied to the sum before differentiation: 1/accumulate, a gradient scaler.
        sync: whether this call averages gradients over ranks, as the last one of an accumulated step does.
        epoch: as in `Features`.
    """
    batch = _perturbed(objective, batch)
    pieces = cut(batch, objective.micro_batch)
    several = len(pieces) > 1
    passes = [_pass(objective, piece, graph=not several, sync=sync) for piece in pieces]
    columns, trained = _columns(objective, batch, pieces, passes)
    losses = objective.losses(_features(objective, batch, columns, epoch))
    scale(torch.stack(list(losses.values())).sum()).backward()  # type: ignore[no-untyped-call]
    if trained is not None and trained.grad is not None:
        _through_towers(objective, batch, pieces, passes, objective.world.own_gradient(trained.grad), several, sync)
    reported = torch.stack([loss.detach() for loss in losses.values()])
    objective.world.average([reported])
    return BatchLosses(dict(zip(losses, reported, strict=True)), sum(int(piece.lengths.sum()) for piece in pieces))


def evaluate(objective: Objective, batch: Batch) -> dict[str, Tensor]:
    """The batch's losses by name on this rank, without gradients; the same whatever was drawn before."""
    single = replace(objective, towers=bare(objective.towers), world=World())
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        batch = _perturbed(objective, batch)
        pieces = cut(batch, objective.micro_batch)
        passes = [_pass(single, piece, graph=False, sync=False) for piece in pieces]
        columns, _ = _columns(single, batch, pieces, passes)
        return objective.losses(_features(objective, batch, columns))


def _features(objective: Objective, batch: Batch, columns: Mapping[str, Feature], epoch: int | None = None) -> Features:
    labels = {name: values.to(objective.device) for name, values in batch.labels.items()}
    scale: Tensor | Sigmoid = objective.model.logit_scale.exp()
    if has_sigmoid_loss(objective.model):
        scale = Sigmoid(objective.model.logit_scale.exp(), objective.model.logit_bias)
    return Features(columns, scale, objective.extra, batch.tokens, labels, epoch)


def _with_base(objective: Objective, teacher: Teacher, batch: Batch) -> Batch:
    """The batch with features `base.<column>` of its texts and pixels."""
    read, asked = teacher.reads(batch), replace(objective, towers=teacher.towers)
    pieces = cut(read, objective.micro_batch)
    found = _by_column(read, pieces, [_pass(asked, piece, graph=False, sync=False) for piece in pieces])
    names = [BASE + name for name in (*sorted(batch.tokens), *sorted(batch.pixels))]
    return replace(batch, features={**batch.features, **dict(zip(names, found, strict=True))})


def _perturbed(objective: Objective, batch: Batch) -> Batch:
    if objective.teacher is not None:
        batch = _with_base(objective, objective.teacher, batch)
    if objective.perturb is None:
        return batch
    with torch.no_grad():
        changed = objective.perturb(batch.tokens)
    return replace(
        batch,
        tokens={**batch.tokens, **changed.tokens},
        lengths={**batch.lengths, **changed.lengths},
        features={**batch.features, **changed.features},
    )


def bare(towers: Towers | DistributedDataParallel) -> Towers:
    """The towers without DDP around them."""
    inner = towers.module if isinstance(towers, DistributedDataParallel) else towers
    assert isinstance(inner, Towers)
    return inner


def _pass(objective: Objective, piece: MicroBatch, *, graph: bool, sync: bool) -> Passed:
    """Features of one piece's texts and images; only a pass with a graph may use DDP."""
    towers = objective.towers if graph else bare(objective.towers)
    unsynced = not sync and isinstance(towers, DistributedDataParallel)
    no_sync: AbstractContextManager[None] = towers.no_sync() if unsynced else nullcontext()  # type: ignore[operator]
    with torch.set_grad_enabled(graph and torch.is_grad_enabled()), no_sync:
        features: Passed = towers(*(_moved(rows, objective.device) for rows in (piece.texts, piece.pixels)))
    return features


def _moved(rows: Tensor | None, device: str) -> Tensor | None:
    return None if rows is None else rows.to(device, non_blocking=True)


def _columns(
    objective: Objective, batch: Batch, pieces: list[MicroBatch], passes: list[Passed]
) -> tuple[dict[str, Feature], Tensor | None]:
    """All columns over all ranks, and the gathered features of trained towers `[columns, global batch, dim]`."""
    world, rows = objective.world, len(batch.ids)
    texts, images, cached = sorted(batch.tokens), sorted(batch.pixels), sorted(batch.features)
    own = _by_column(batch, pieces, passes)
    fixed = [batch.features[name].to(objective.device, non_blocking=True) for name in cached]
    everyone = world.gather(torch.stack([*own, *fixed]))
    trained = everyone[: len(own)].detach().requires_grad_() if own else None
    parts = [*(trained if trained is not None else ()), *everyone[len(own) :]]
    labels = [*texts, *images, *cached]
    weights, alike = (_moved(facts, objective.device) for facts in (batch.weights, batch.alike))
    columns = {
        # A neighbour is another row, so facts about this row's matches do not hold for it.
        label: Feature(part, world.rank * rows, rows, weights, None if label.startswith(NEIGHBOUR) else alike)
        for label, part in zip(labels, parts, strict=True)
    }
    return columns, trained


def _by_column(batch: Batch, pieces: list[MicroBatch], passes: list[Passed]) -> list[Tensor]:
    """The passes' features of each text column and then of each image column, `[batch, dim]`, detached."""
    found: list[Tensor] = []
    if batch.tokens:
        in_order = _in_order([piece.text_rows for piece in pieces], [passed[0] for passed in passes])
        found += in_order.view(len(batch.tokens), len(batch.ids), -1)
    if batch.pixels:
        in_order = _in_order([piece.pixel_rows for piece in pieces], [passed[1] for passed in passes])
        found += in_order.view(len(batch.pixels), len(batch.ids), -1)
    return found


def _in_order(rows: list[Tensor], passes: list[Tensor | None]) -> Tensor:
    """The passes' features in the batch's order, `[columns * batch, dim]`, detached."""
    features = torch.cat([part.detach() for part in passes if part is not None])
    ordered = torch.empty_like(features)
    ordered[torch.cat(rows).to(features.device)] = features
    return ordered


def _through_towers(
    objective: Objective,
    batch: Batch,
    pieces: list[MicroBatch],
    passes: list[Passed],
    gradient: Tensor,
    several: bool,
    sync: bool,
) -> None:
    """Back-propagate `gradient` `[columns, batch, dim]` of the features to the towers' parameters."""
    dim, texts = gradient.shape[-1], len(batch.tokens)
    sides = gradient[:texts].reshape(-1, dim), gradient[texts:].reshape(-1, dim)
    for place, piece in enumerate(pieces):
        last = place == len(pieces) - 1
        both = _pass(objective, piece, graph=True, sync=sync and last) if several else passes[place]
        rows = (piece.text_rows, piece.pixel_rows)
        ends = [
            (features, side[chosen.to(side.device)])
            for features, side, chosen in zip(both, sides, rows, strict=True)
            if features is not None and features.requires_grad
        ]
        torch.autograd.backward([features for features, _ in ends], [part for _, part in ends])
