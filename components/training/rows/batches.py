"""Batches: what the loop gets, which rows make up which batch, and batches of tables.

The order is a function of seed and epoch, so that a resumed run continues exactly.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from components.core.arrays import rows_of
from components.core.column_names import NEIGHBOUR
from components.core.errors import InputError
from components.encoders.adapter.tokens import Tokens
from components.methods.contract.method import Visits
from components.training.rows.crops import Crops
from components.training.rows.query_log import QueryLog


@dataclass(frozen=True)
class Batch:
    """This rank's rows of one contrastive batch.

    Attributes:
        ids: what names each row to a user, `[batch]`.
        tokens: token ids by text column, `[batch, context]`, uncut.
        lengths: tokens of each text up to and with its end token, by text column, `[batch]`.
        features: cached raw image features by image column, `[batch, dim]`; for a frozen image tower.
        pixels: images by image column, uint8 `[batch, 3, size, size]`, or real numbers `[batch, ...]` that the image
            tower takes as they are; for an image tower that trains.
        cursor: where the source goes on after this batch.
        lost: samples that could not be used, between the batch before and this one.
        weights, alike: of the rows, see `Feature`.
        labels: whole numbers that say what each row is, by name, `[batch, ...]`.
    """

    ids: list[str]
    tokens: Mapping[str, Tokens]
    lengths: Mapping[str, npt.NDArray[np.int64]]
    features: Mapping[str, Tensor]
    pixels: Mapping[str, Tensor]
    cursor: int
    lost: int = 0
    weights: Tensor | None = None
    alike: Tensor | None = None
    labels: Mapping[str, Tensor] = field(default_factory=dict)


class Source(Protocol):
    """Where batches come from."""

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch, the same on every rank."""

    def check(self, what: str) -> None:
        """Raise `InputError` when there are too few rows for a single batch."""

    def describe(self) -> dict[str, str]:
        """What must be the same when a run is resumed, as text by name."""

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        """The batches of an epoch from `cursor` (0 or a batch's own): a function of seed, epoch and cursor alone."""


Rows = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Sampler:
    """Batches of row numbers.

    An epoch visits every group once, by one of its rows drawn at random. The partial last batch is dropped.

    Attributes:
        groups: the group of each row, `[rows]`, see `groups_of`.
        batch_size: of the global batch.
        seed: draws the order.
    """

    groups: Rows
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return len(np.unique(self.groups)) // self.batch_size

    def check(self, what: str) -> None:
        """Raise `InputError` when there are too few rows for a single batch."""
        if self.steps_per_epoch == 0:
            distinct = len(np.unique(self.groups))
            raise InputError(
                f"{what} visits {distinct} rows in an epoch, fewer than batch_size {self.batch_size}: lower it"
            )

    def epoch(self, epoch: int) -> list[Rows]:
        """The batches of one epoch."""
        rng = np.random.default_rng([self.seed, epoch])
        shuffled = rng.permutation(len(self.groups))
        _, first = np.unique(self.groups[shuffled], return_index=True)
        rows = rng.permutation(shuffled[first])
        size = self.batch_size
        return [rows[start * size : (start + 1) * size] for start in range(self.steps_per_epoch)]


def groups_of(visits: Visits, images: Rows, pairs: Iterable[Rows]) -> Rows:
    """The group of each row, `[rows]`.

    Args:
        images: the image of each row, `[rows]`.
        pairs: the pair of each row, and the other pair where rows are about two, `[rows]` each.
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
class OtherImages:
    """Images that no row is about, to be neighbours of the rows' images.

    Attributes:
        image_ids: of the images.
        features: unit rows `[images, dim]`.
        norms: lengths that raw features have, `[images]`.
    """

    image_ids: Sequence[str]
    features: Vectors
    norms: Vectors

    def raw(self, rows: Rows) -> Tensor:
        """Raw features of these images, `[rows, dim]`."""
        return torch.from_numpy(rows_of(self.features, rows) * self.norms[rows, None])


@dataclass(frozen=True)
class TableSource:
    """Implements `Source` over rows in memory or memory-mapped.

    Attributes:
        sampler: global batches of row numbers.
        names: what names a row to a user, `[rows]`.
        tokens: token ids by text column, `[rows, context]`.
        lengths: tokens of each text by text column, `[rows]`.
        images: the image of each row by image column, `[rows]`.
        features: raw image features `[images, dim]`, or None where pixels are wanted.
        norms: lengths of `features`' rows when those are unit, `[images]`; None leaves them as they are.
        pixels: as in `Batch`, `[images, ...]`, or None.
        wanted: the columns to deliver.
        draws: made-up text column -> the columns it is drawn from with their shares.
        neighbours: rows of the nearest other images, `[rows, count]`; None where no column asks for one.
        others: the images that `neighbours` are rows of, where these are no rows of this source.
        log: what a query log says of the rows; None where they are of none.
        labels: as in `Batch`, `[rows, ...]`.
        crops: of `pixels`; None leaves them whole.
        rank, ranks: which share of every global batch is delivered.
    """

    sampler: Sampler
    names: Sequence[str]
    tokens: Mapping[str, Tokens]
    lengths: Mapping[str, npt.NDArray[np.int64]]
    images: Mapping[str, Rows]
    features: npt.NDArray[np.float32] | None
    pixels: Tensor | None
    wanted: frozenset[str]
    norms: npt.NDArray[np.float32] | None = None
    draws: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    neighbours: Rows | None = None
    others: OtherImages | None = None
    log: QueryLog | None = None
    labels: Mapping[str, Rows] = field(default_factory=dict)
    crops: Crops | None = None
    rank: int = 0
    ranks: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in an epoch."""
        return self.sampler.steps_per_epoch

    def check(self, what: str) -> None:
        """Raise `InputError` when there are too few rows for a single batch."""
        self.sampler.check(what)

    def describe(self) -> dict[str, str]:
        """What a resumed run must find again; batches are global, so the number of ranks is free."""
        return {"kind": "table"}

    def epoch(self, epoch: int, cursor: int = 0) -> Generator[Batch]:
        """The batches of an epoch from number `cursor` on."""
        rng = np.random.default_rng([self.sampler.seed, epoch, 1])
        rows = len(self.names)
        drawn = {
            name: _cumulative(rng.random(rows), list(shares.values())) for name, shares in sorted(self.draws.items())
        }
        partner = None
        if self.neighbours is not None:
            partner = self.neighbours[np.arange(rows), rng.integers(self.neighbours.shape[1], size=rows)]
        for place, chosen in enumerate(self.sampler.epoch(epoch)[cursor:], start=cursor + 1):
            share = len(chosen) // self.ranks
            own = slice(self.rank * share, (self.rank + 1) * share)
            batch = self._batch(chosen[own], drawn, partner, place)
            if self.crops is not None:
                batch = replace(batch, pixels=self._cropped(batch.pixels, chosen[own], partner, epoch))
            if self.log is not None:
                batch = replace(batch, weights=self.log.weights_of(chosen, own), alike=self.log.alike(chosen, own))
            yield batch

    def _batch(self, rows: Rows, drawn: Mapping[str, Rows], partner: Rows | None, cursor: int) -> Batch:
        tokens: dict[str, Tokens] = {}
        lengths: dict[str, npt.NDArray[np.int64]] = {}
        features: dict[str, Tensor] = {}
        pixels: dict[str, Tensor] = {}
        for column in sorted(self.wanted):
            name = column.removeprefix(NEIGHBOUR)
            here = rows
            if column.startswith(NEIGHBOUR):
                assert partner is not None
                here = partner[rows]
                if self.others is not None:
                    features[column] = self.others.raw(here)
                    continue
            if name in self.draws:
                tokens[column], lengths[column] = self._drawn(name, here, drawn[name][here])
            elif name in self.images:
                self._image(column, self.images[name][here], features, pixels)
            else:
                tokens[column], lengths[column] = rows_of(self.tokens[name], here), self.lengths[name][here]
        labels = {name: torch.from_numpy(values[rows]) for name, values in self.labels.items()}
        return Batch([self.names[row] for row in rows], tokens, lengths, features, pixels, cursor, labels=labels)

    def _cropped(self, pixels: Mapping[str, Tensor], rows: Rows, partner: Rows | None, epoch: int) -> dict[str, Tensor]:
        assert self.crops is not None
        found = {}
        for column, images in pixels.items():
            name = column.removeprefix(NEIGHBOUR)
            here = rows if name == column or partner is None else partner[rows]
            found[column] = self.crops.of(images, list(map(str, self.images[name][here])), epoch)
        return found

    def _drawn(self, name: str, rows: Rows, choice: Rows) -> tuple[Tokens, npt.NDArray[np.int64]]:
        columns = list(self.draws[name])
        tokens = np.stack(
            [self.tokens[column][row] for column, row in zip(np.array(columns)[choice], rows, strict=True)]
        )
        lengths = np.stack([self.lengths[column][rows] for column in columns])[choice, np.arange(len(rows))]
        return tokens, lengths

    def _image(self, column: str, images: Rows, features: dict[str, Tensor], pixels: dict[str, Tensor]) -> None:
        if self.pixels is not None:
            pixels[column] = self.pixels[torch.from_numpy(images)]
            return
        assert self.features is not None
        found = rows_of(self.features, images)
        features[column] = torch.from_numpy(found if self.norms is None else found * self.norms[images, None])


def _cumulative(uniform: npt.NDArray[np.float64], shares: list[float]) -> Rows:
    """Which of the shares each uniform number falls into."""
    bounds = np.cumsum(np.array(shares) / sum(shares))
    return np.minimum(np.searchsorted(bounds, uniform, side="right"), len(shares) - 1).astype(np.int64)
