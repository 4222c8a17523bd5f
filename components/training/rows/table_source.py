"""Batches from tables: token cache, cached image features or decoded pixels, all addressed by row."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from components.core.training_columns import NEIGHBOUR
from components.encoders.adapter.texts.tokens import Tokens
from components.training.rows.batch import Batch
from components.training.rows.neighbours import OtherImages
from components.training.rows.sampler import Rows, Sampler


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
        pixels: uint8 `[images, 3, size, size]`, or None.
        wanted: the columns to deliver.
        draws: made-up text column -> the columns it is drawn from with their shares.
        neighbours: rows of the nearest other images, `[rows, count]`; None where no column asks for one.
        others: the images that `neighbours` are rows of, where these are no rows of this source.
        rank, ranks: which share of every global batch is delivered.
    """

    sampler: Sampler
    names: list[str]
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
            yield self._batch(chosen[self.rank * share : (self.rank + 1) * share], drawn, partner, place)

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
                tokens[column], lengths[column] = np.asarray(self.tokens[name][here]), self.lengths[name][here]
        return Batch([self.names[row] for row in rows], tokens, lengths, features, pixels, cursor)

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
        found = np.asarray(self.features[images])
        features[column] = torch.from_numpy(found if self.norms is None else found * self.norms[images, None])


def _cumulative(uniform: npt.NDArray[np.float64], shares: list[float]) -> Rows:
    """Which of the shares each uniform number falls into."""
    bounds = np.cumsum(np.array(shares) / sum(shares))
    return np.minimum(np.searchsorted(bounds, uniform, side="right"), len(shares) - 1).astype(np.int64)
