"""Batches of rows of tables; their order is a function of seed and epoch, so that a resumed run continues exactly."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from zlib import crc32

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from components.core.compute.distributed import World
from components.core.system.errors import InputError
from components.core.tables import NEIGHBOUR
from components.core.tables.arrays import rows_of
from components.encoders.adapter.tokens import Tokens
from components.training.methods.contract.method import Method, Neighbours, Optimisation, Visits
from components.training.rows.tables import QueryLog, Rows

Vectors = npt.NDArray[np.float32]
Choices = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Batch:
    """This rank's rows of one contrastive batch.

    Attributes:
        ids: the rows' names in messages, `[batch]`.
        tokens: token ids by text column, `[batch, context]`, uncut.
        lengths: tokens of each text up to and with its end token, by text column, `[batch]`.
        features: cached raw image features by image column, `[batch, dim]`, for a frozen image tower.
        pixels: images by image column for a trained image tower, uint8 `[batch, 3, size, size]`; floats `[batch, ...]`
            are not normalised.
        cursor: position in the source after this batch.
        lost: unusable samples since the previous batch.
        weights, alike: of the rows, see `Feature`.
        labels: class numbers of the rows by name, `[batch, ...]`.
    """

    ids: list[str]
    tokens: Mapping[str, Tokens]
    lengths: Mapping[str, Rows]
    features: Mapping[str, Tensor]
    pixels: Mapping[str, Tensor]
    cursor: int
    lost: int = 0
    weights: Tensor | None = None
    alike: Tensor | None = None
    labels: Mapping[str, Tensor] = field(default_factory=dict)


class BatchSource(Protocol):
    """Where batches come from: tables (`TableSource`) or shards (`ShardSource`)."""

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch, the same on every rank."""

    def check(self, title: str) -> None:
        """Raise `InputError` if there are too few rows for a single batch."""

    def describe(self) -> dict[str, str]:
        """Facts by name that must be unchanged when a run is resumed."""

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        """The batches of an epoch from `cursor` (0 or a batch's own): a function of seed, epoch and cursor."""


@dataclass(frozen=True)
class BatchPlan:
    """How a source makes batches.

    Attributes:
        batch_size: of the global batch.
        draws: see `Method.column_mixture`.
        visits: see `Method.epoch_unit`.
        near: the number of nearest images that a neighbour is drawn from.
        weighted: whether rows have the weights of their pairs, if these have any.
        least_crop: the smallest share of an image's area that a random crop leaves; 1 does not crop.
    """

    columns: frozenset[str]
    batch_size: int
    seed: int = 0
    draws: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    visits: Visits = "images"
    near: int = Neighbours.count
    weighted: bool = False
    least_crop: float = 1.0
    world: World = field(default_factory=World)

    @staticmethod
    def of(method: Method[Optimisation], seed: int, world: World) -> BatchPlan:
        """The plan of a method."""
        return BatchPlan(
            columns=method.columns,
            batch_size=method.settings.batch_size,
            seed=seed,
            draws=method.column_mixture,
            visits=method.epoch_unit,
            near=method.neighbours.count,
            weighted=method.weighted,
            least_crop=method.settings.least_crop,
            world=world,
        )

    @property
    def joined(self) -> frozenset[str]:
        """The columns that the data must have."""
        drawn = {column for shares in self.draws.values() for column in shares}
        return frozenset((self.columns - set(self.draws)) | drawn)

    @property
    def crops(self) -> Crops | None:
        """The crops of images, if any."""
        return Crops(self.least_crop, self.seed) if self.least_crop < 1 else None


@dataclass(frozen=True)
class Crops:
    """Random resized crops, as in the training of CLIP, open_clip and NegCLIP; a function of seed, epoch and image.

    Theirs are parts of the original image, these of the prepared square, whose margins are already cut off.
    """

    least: float
    seed: int

    def of(self, pixels: Tensor, names: Iterable[str], epoch: int) -> Tensor:
        """Images `[images, 3, size, size]`, uint8, each cropped and resized (bicubic)."""
        return torch.stack([self._crop(image, name, epoch) for image, name in zip(pixels, names, strict=True)])

    def _crop(self, image: Tensor, name: str, epoch: int) -> Tensor:
        # torchvision takes a second to import.
        from torchvision.transforms.v2.functional import InterpolationMode, resized_crop

        rng, size = np.random.default_rng([self.seed, epoch, crc32(name.encode())]), image.shape[-1]
        for _ in range(_TRIES):
            area, ratio = size**2 * rng.uniform(self.least, 1), math.exp(rng.uniform(*_RATIO))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if max(width, height) <= size:
                top, left = (int(rng.integers(size - side + 1)) for side in (height, width))
                cut: Tensor = resized_crop(image, top, left, height, width, [size, size], InterpolationMode.BICUBIC)
                return cut
        return image


_RATIO = math.log(3 / 4), math.log(4 / 3)
_TRIES = 10
"""Like torchvision's `RandomResizedCrop`, which does not crop the image after ten boxes that do not fit."""


@dataclass(frozen=True)
class Sampler:
    """Batches of row numbers.

    An epoch visits every group once, by one of its rows drawn at random. The partial last batch is dropped.

    Attributes:
        groups: the group of each row, `[rows]`, see `groups_of`.
        drops: False makes batches of nearly equal size instead, at most `batch_size`, which have all groups.
    """

    groups: Rows
    batch_size: int
    seed: int
    drops: bool = True

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return len(np.unique(self.groups)) // self.batch_size

    def epoch(self, epoch: int) -> list[Rows]:
        """The batches of one epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        # Every rank holds the whole order; it is that of 64-bit numbers, in half of their memory.
        rows: Any = np.arange(len(self.groups), dtype=np.int32)
        rng.shuffle(rows)
        rows = rows[np.unique(self.groups[rows], return_index=True)[1]]
        rng.shuffle(rows)
        size = self.batch_size
        if not self.drops:
            return np.array_split(rows, max(1, -(-len(rows) // size)))
        return [rows[start * size : (start + 1) * size] for start in range(self.steps_per_epoch)]


def groups_of(visits: Visits, images: Rows, pairs: Iterable[Rows]) -> Rows:
    """The group of each row, `[rows]`.

    Args:
        images: the image of each row, `[rows]`.
        pairs: the pair of each row, and the other pair if rows are about two, `[rows]` each.
    """
    if visits == "rows":
        return np.arange(len(images), dtype=np.int64)
    if visits == "images":
        return images
    groups = np.zeros_like(images)
    for part in pairs:
        groups = groups * (part.max(initial=0) + 1) + part
    return groups


@dataclass(frozen=True)
class Texts:
    """Token ids `[rows, context]` of a text column, and the number of tokens of each text `[rows]`."""

    tokens: Tokens
    lengths: Rows

    def take(self, rows: Rows) -> Texts:
        """The texts of these rows."""
        return Texts(rows_of(self.tokens, rows), self.lengths[rows])


@dataclass(frozen=True)
class CachedFeatures:
    """Cached features of images, for a frozen image tower.

    Attributes:
        features: `[images, dim]`.
        norms: lengths of the raw features if `features` are unit rows, `[images]`; None if `features` are raw.
        image_ids: of the images, where they are not those of the rows.
    """

    features: Vectors
    norms: Vectors | None = None
    image_ids: Sequence[str] = ()

    def raw(self, images: Rows) -> Tensor:
        """Raw features of these images, `[rows, dim]`."""
        rows = rows_of(self.features, images)
        return torch.from_numpy(rows if self.norms is None else rows * self.norms[images, None])


@dataclass(frozen=True)
class DecodedImages:
    """Decoded images, for an image tower that trains: `pixels` as in `Batch`, `[images, ...]`."""

    pixels: Tensor
    crops: Crops | None = None

    def of(self, images: Rows, epoch: int) -> Tensor:
        """The pixels of these images, cropped if there are crops."""
        pixels = self.pixels[torch.from_numpy(images)]
        return pixels if self.crops is None else self.crops.of(pixels, map(str, images.tolist()), epoch)


@dataclass(frozen=True)
class TableSource:
    """Implements `BatchSource` over rows in memory or memory-mapped.

    Attributes:
        names: the rows' names in messages, `[rows]`.
        images: the image of each row by image column, `[rows]`.
        draws: see `Method.column_mixture`.
        neighbours: rows of the nearest other images, `[rows, count]`; None if no column needs one.
        others: the images that `neighbours` are rows of, if they are not rows of this source.
        log: facts of a query log about the rows; None without a query log.
        labels: as in `Batch`, `[rows, ...]`.
    """

    sampler: Sampler
    columns: frozenset[str]
    names: Sequence[str]
    texts: Mapping[str, Texts]
    images: Mapping[str, Rows]
    shown: CachedFeatures | DecodedImages
    draws: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    neighbours: Rows | None = None
    others: CachedFeatures | None = None
    log: QueryLog | None = None
    labels: Mapping[str, Rows] = field(default_factory=dict)
    world: World = field(default_factory=World)

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return self.sampler.steps_per_epoch

    def check(self, title: str) -> None:
        """Raise `InputError` if there are too few rows for a single batch."""
        if self.steps_per_epoch == 0:
            rows, size = len(np.unique(self.sampler.groups)), self.sampler.batch_size
            raise InputError(f"{title} visits {rows} rows in an epoch, fewer than batch_size {size}: lower it")

    def describe(self) -> dict[str, str]:
        """Batches are global, so the number of ranks may change when a run is resumed."""
        return {"kind": "table"}

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        """The batches of an epoch from number `cursor` on."""
        rng = np.random.default_rng([self.sampler.seed, epoch, 1])
        rows = len(self.names)
        choices = {name: _choices(rng.random(rows), shares) for name, shares in sorted(self.draws.items())}
        neighbour = np.arange(0)
        if self.neighbours is not None:
            neighbour = self.neighbours[np.arange(rows), rng.integers(self.neighbours.shape[1], size=rows)]
        for number, chosen in enumerate(self.sampler.epoch(epoch)[cursor:], start=cursor + 1):
            yield self._batch(chosen, epoch, choices, neighbour, number)

    def _batch(self, chosen: Rows, epoch: int, choices: Mapping[str, Choices], neighbour: Rows, cursor: int) -> Batch:
        share = len(chosen) // self.world.size
        own = slice(self.world.rank * share, (self.world.rank + 1) * share)
        rows = chosen[own]
        texts: dict[str, Texts] = {}
        features: dict[str, Tensor] = {}
        pixels: dict[str, Tensor] = {}
        for column in sorted(self.columns):
            name = column.removeprefix(NEIGHBOUR)
            here = rows if name == column else neighbour[rows]
            if name != column and self.others is not None:
                features[column] = self.others.raw(here)
            elif name in self.draws:
                texts[column] = self._drawn(name, here, choices[name][here])
            elif name not in self.images:
                texts[column] = self.texts[name].take(here)
            elif isinstance(self.shown, DecodedImages):
                pixels[column] = self.shown.of(self.images[name][here], epoch)
            else:
                features[column] = self.shown.raw(self.images[name][here])
        return Batch(
            ids=[self.names[row] for row in rows],
            tokens={column: text.tokens for column, text in texts.items()},
            lengths={column: text.lengths for column, text in texts.items()},
            features=features,
            pixels=pixels,
            cursor=cursor,
            weights=self.log.weights_of(chosen, own) if self.log is not None else None,
            alike=self.log.alike(chosen, own) if self.log is not None else None,
            labels={name: torch.from_numpy(values[rows]) for name, values in self.labels.items()},
        )

    def _drawn(self, name: str, rows: Rows, choice: Choices) -> Texts:
        columns = list(self.draws[name])
        picked = zip(np.array(columns)[choice], rows, strict=True)
        tokens = np.stack([self.texts[column].tokens[row] for column, row in picked])
        lengths = np.stack([self.texts[column].lengths[rows] for column in columns])
        return Texts(tokens, lengths[choice, np.arange(len(rows))])


def _choices(uniform: npt.NDArray[np.float64], columns: Mapping[str, float]) -> Choices:
    """The share that each uniform number falls into."""
    shares = list(columns.values())
    bounds = np.cumsum(np.array(shares) / sum(shares))
    return np.minimum(np.searchsorted(bounds, uniform, side="right"), len(shares) - 1).astype(np.int8)
