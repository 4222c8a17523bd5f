"""A batch as a source hands it to the loop."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from components.encoders.adapter.texts.tokens import Tokens


@dataclass(frozen=True)
class Batch:
    """This rank's rows of one contrastive batch.

    Attributes:
        ids: what names each row to a user, `[batch]`.
        tokens: token ids by text column, `[batch, context]`, uncut.
        lengths: tokens of each text up to and with its end token, by text column, `[batch]`.
        features: cached raw image features by image column, `[batch, dim]`; for a frozen image tower.
        pixels: images by image column, uint8 `[batch, 3, size, size]`; for an image tower that trains.
        cursor: where the source goes on after this batch.
        lost: samples that could not be used, between the batch before and this one.
    """

    ids: list[str]
    tokens: Mapping[str, Tokens]
    lengths: Mapping[str, npt.NDArray[np.int64]]
    features: Mapping[str, Tensor]
    pixels: Mapping[str, Tensor]
    cursor: int
    lost: int = 0


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
