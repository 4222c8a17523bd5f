"""Every text and image goes through the towers once, in pieces no larger than asked."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from components.training.engine.gradients import MicroBatch, cut
from components.training.rows.batches import Batch
from tests.support.toy_training import CONTEXT, toy_batch

NAMES = ("caption", "difference", "negation")
BATCHES = st.builds(
    lambda rows, texts, images: toy_batch(range(rows), NAMES[:texts], (), ("image", "other_image")[:images]),
    st.integers(1, 9),
    st.integers(0, 3),
    st.integers(0, 2),
)
SIZES = st.none() | st.integers(1, 12)


def _texts(batch: Batch) -> np.ndarray:  # type: ignore[type-arg]
    return np.concatenate([batch.tokens[name] for name in sorted(batch.tokens)])


def _lengths(batch: Batch, piece: MicroBatch) -> np.ndarray:  # type: ignore[type-arg]
    return np.concatenate([batch.lengths[name] for name in sorted(batch.lengths)])[piece.text_rows.numpy()]


@given(BATCHES, SIZES)
def test_every_text_and_image_is_in_one_piece(batch: Batch, size: int | None) -> None:
    pieces = cut(batch, size)
    rows = len(batch.ids)
    for found, columns in (("text_rows", len(batch.tokens)), ("pixel_rows", len(batch.pixels))):
        assert sorted(torch.cat([getattr(piece, found) for piece in pieces]).tolist()) == list(range(columns * rows))


@given(BATCHES, SIZES)
def test_pieces_are_as_few_as_can_be_and_no_larger_than_asked(batch: Batch, size: int | None) -> None:
    pieces = cut(batch, size)
    most = max(len(batch.tokens), len(batch.pixels)) * len(batch.ids)
    assert len(pieces) == (max(1, math.ceil(most / size)) if size else 1)
    if size:
        assert all(len(piece.text_rows) <= size and len(piece.pixel_rows) <= size for piece in pieces)


@given(BATCHES, SIZES)
def test_texts_are_their_rows_cut_after_the_longest(batch: Batch, size: int | None) -> None:
    for piece in cut(batch, size):
        assert (piece.texts is None) == (not len(piece.text_rows))
        if piece.texts is None:
            assert piece.tokens == 0
            continue
        lengths = _lengths(batch, piece)
        assert piece.texts.shape[1] == lengths.max() <= CONTEXT
        assert (piece.texts.numpy() == _texts(batch)[piece.text_rows.numpy(), : lengths.max()]).all()
        assert piece.tokens == lengths.sum()
        assert piece.texts.dtype == torch.int64


@given(BATCHES, SIZES)
def test_longer_texts_come_first(batch: Batch, size: int | None) -> None:
    found = [_lengths(batch, piece) for piece in cut(batch, size) if piece.texts is not None]
    assert all(earlier.min() >= later.max() for earlier, later in pairwise(found))


@given(BATCHES, SIZES)
def test_pixels_are_their_rows(batch: Batch, size: int | None) -> None:
    for piece in cut(batch, size):
        assert (piece.pixels is None) == (not len(piece.pixel_rows))
        if piece.pixels is not None:
            everything = torch.cat([batch.pixels[name] for name in sorted(batch.pixels)])
            assert torch.equal(piece.pixels, everything[piece.pixel_rows])


@given(BATCHES, SIZES)
def test_the_pass_that_averages_over_ranks_involves_both_towers(batch: Batch, size: int | None) -> None:
    last = cut(batch, size)[-1]
    assert (last.texts is not None) == bool(batch.tokens)
    assert (last.pixels is not None) == bool(batch.pixels)
