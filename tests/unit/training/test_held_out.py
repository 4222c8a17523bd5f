"""Rows kept from training, and the early metrics on them against brute force."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.encoders.encoder import Encoder
from components.training.held_out import HeldOut, Vectors, choose_held_out, embed
from tests.unit.training.world import sentence


@given(st.lists(st.text("abcdef", min_size=1, max_size=4)), st.integers(0, 20), st.integers(0, 3))
def test_at_most_a_tenth_is_held_out_whatever_the_order(ids: list[str], count: int, seed: int) -> None:
    held = choose_held_out(pd.Series(ids, dtype=str), count, seed)
    assert held <= set(ids)
    assert len(held) == min(count, len(set(ids)) // 10)
    assert held == choose_held_out(pd.Series([*sorted(ids), *ids], dtype=str), count, seed)
    assert choose_held_out(pd.Series(ids, dtype=str), count // 2, seed) <= held


def test_seeds_choose_otherwise() -> None:
    ids = pd.Series([f"pair-{row}" for row in range(200)])
    assert choose_held_out(ids, 20, 0) != choose_held_out(ids, 20, 1)


def _ranked(texts: Vectors, gallery: Vectors) -> list[list[int]]:
    return [sorted(range(len(gallery)), key=lambda row: (-float(text @ gallery[row]), row)) for text in texts]


def _unit(rows: int, dim: int) -> Vectors:
    found = np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)
    unit: Vectors = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


@pytest.fixture
def queries() -> HeldOut:
    rng = np.random.default_rng(1)
    captions = [sentence(rng) for _ in range(30)]
    # Half of the paraphrases are the captions themselves, so that overlaps range from none to all.
    paraphrases = [text if row % 2 else sentence(rng) for row, text in enumerate(captions)]
    return HeldOut(captions, paraphrases, lambda: _unit(40, 16))


def test_metrics_are_those_of_brute_force(queries: HeldOut, tiny_encoder: Encoder) -> None:
    scores = queries.score(tiny_encoder.model, tiny_encoder.tokenizer, "cpu")
    assert queries.paraphrases is not None
    gallery = queries.gallery()
    found, others = (
        _ranked(tiny_encoder.embed_texts(texts), gallery) for texts in (queries.captions, queries.paraphrases)
    )
    hits = [row in ranks[:5] for row, ranks in enumerate(found)]
    overlaps = [
        sum(len(set(one[:depth]) & set(other[:depth])) / depth for depth in range(1, 11)) / 10
        for one, other in zip(found, others, strict=True)
    ]
    assert scores == {
        "validation/r_at_5": pytest.approx(np.mean(hits)),
        "validation/ao_at_10": pytest.approx(np.mean(overlaps)),
    }
    assert 0 < np.mean(hits) < 1


def test_without_paraphrases_there_is_no_overlap(queries: HeldOut, tiny_encoder: Encoder) -> None:
    alone = HeldOut(queries.captions, None, queries.gallery)
    assert set(alone.score(tiny_encoder.model, tiny_encoder.tokenizer, "cpu")) == {"validation/r_at_5"}


def test_texts_are_embedded_as_the_encoder_does(queries: HeldOut, tiny_encoder: Encoder) -> None:
    found = embed(tiny_encoder.model, tiny_encoder.tokenizer, queries.captions, "cpu", batch_size=7)
    np.testing.assert_allclose(found, tiny_encoder.embed_texts(queries.captions), atol=1e-6)
