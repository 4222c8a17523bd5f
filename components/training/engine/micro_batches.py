"""A batch cut into pieces that fit into memory: texts of like length together, whichever column they are from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from components.training.rows.batch import Batch

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class MicroBatch:
    """What one pass through the towers computes.

    Attributes:
        texts: token ids `[texts, longest]`, cut after the longest text's end token; None without texts.
        text_rows: where the texts stand among the batch's, columns one after another.
        pixels: uint8 `[images, 3, size, size]`; None for a frozen image tower.
        pixel_rows: where the images stand, likewise.
        tokens: tokens up to and with each text's end token, summed.
    """

    texts: Tensor | None
    text_rows: Tensor
    pixels: Tensor | None
    pixel_rows: Tensor
    tokens: int


def cut(batch: Batch, size: int | None) -> list[MicroBatch]:
    """The batch in pieces of at most `size` texts and `size` images; one piece without a size.

    The last piece has some of both where the batch has both: DDP averages gradients in its pass, so every trained
    parameter must take part in it.
    """
    texts = sorted(batch.tokens)
    lengths = np.concatenate([batch.lengths[name] for name in texts]) if texts else np.zeros(0, np.int64)
    images = sum(len(batch.pixels[name]) for name in batch.pixels)
    pieces = max(1, math.ceil(max(len(lengths), images) / size)) if size else 1
    # Longest first: the largest allocation comes first and the others fit into it. Where there are fewer rows than
    # pieces, `array_split` leaves its last parts empty, which therefore become the first.
    order = np.argsort(lengths, kind="stable")
    text_parts, pixel_parts = (np.array_split(rows, pieces)[::-1] for rows in (order, np.arange(images)))
    return [
        MicroBatch(
            texts=_texts(batch, texts, lengths, rows),
            text_rows=torch.from_numpy(rows),
            pixels=_pixels(batch, pixels),
            pixel_rows=torch.from_numpy(pixels),
            tokens=int(lengths[rows].sum()),
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
